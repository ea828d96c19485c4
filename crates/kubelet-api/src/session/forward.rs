//! port-forward: many pairs of streams over one connection, each pair a connection to a port in the Pod.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::version::WebSocketFlavour;
use super::{Pace, farewell, websocket};
use crate::backend::{Backend, Duplex, PodRef};
use crate::spdy::{Broken, Connection, Headers, Incoming, rst};
use crate::stream::{Reader, Writer};

/// How often half pairs are looked at.
const SWEEP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Error,
    Data,
}

/// What the headers of a stream say.
#[derive(Debug, PartialEq, Eq)]
struct Label {
    half: Half,
    port: NonZeroU16,
    /// What both halves share.
    request: String,
}

/// A client that numbers nothing opens the error stream first and the data stream with the next odd id.
fn label(id: u32, headers: &Headers) -> Option<Label> {
    let half = match headers.get("streamtype")? {
        "error" => Half::Error,
        "data" => Half::Data,
        _ => return None,
    };
    let port = headers.get("port")?.parse().ok()?;
    let request = headers.get("requestid").map_or_else(
        || match half {
            Half::Error => format!("stream {id}"),
            Half::Data => format!("stream {}", id.saturating_sub(2)),
        },
        str::to_owned,
    );
    Some(Label { half, port, request })
}

fn admit(headers: &Headers) -> bool {
    label(1, headers).is_some()
}

/// A pair of which one half has come.
struct Waiting {
    half: Half,
    stream: Incoming,
    since: Instant,
}

/// Serves forwarded connections until the caller goes, or the agent does.
pub(crate) async fn forward_spdy<B, T>(
    backend: Arc<B>,
    pod: PodRef,
    io: T,
    pace: Pace,
    stop: CancellationToken,
) -> Result<(), Broken>
where
    B: Backend,
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut connection = Connection::start(io, pace.ports(), admit);
    let gone = connection.gone();
    let mut waiting: HashMap<String, Waiting> = HashMap::new();
    let mut pairs = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let idle = connection.idle(pace.idle);
        tokio::select! {
            incoming = connection.incoming.recv() => {
                let Some(stream) = incoming else { break };
                let Some(label) = label(stream.id, &stream.headers) else { continue };
                match waiting.remove(&label.request) {
                    Some(other) if other.half != label.half => {
                        let (error, data) = match label.half {
                            Half::Data => (other.stream, stream),
                            Half::Error => (stream, other.stream),
                        };
                        // Streams the caller has ended no longer count as open, but their targets may be.
                        if pairs.len() < pace.forwards / 2 {
                            pairs.spawn(join(backend.clone(), pod.clone(), label.port, error, data));
                        } else {
                            reset(&error.writer, rst::REFUSED_STREAM).await;
                            reset(&data.writer, rst::REFUSED_STREAM).await;
                        }
                    }
                    None if waiting.len() >= pace.forwards => reset(&stream.writer, rst::REFUSED_STREAM).await,
                    // The same half twice: the newer one counts, the older one is told.
                    stale => {
                        if let Some(stale) = stale {
                            reset(&stale.stream.writer, rst::PROTOCOL_ERROR).await;
                        }
                        let since = Instant::now();
                        waiting.insert(label.request, Waiting { half: label.half, stream, since });
                    }
                }
            }
            Some(_) = pairs.join_next() => {}
            _ = sweep.tick() => {
                let late = waiting.extract_if(|_, half| half.since.elapsed() >= pace.creation);
                let late: Vec<_> = late.collect();
                for (_, half) in late {
                    reset(&half.stream.writer, rst::CANCEL).await;
                }
            }
            () = gone.cancelled() => return Ok(()),
            () = idle => break,
            () = stop.cancelled() => break,
        }
    }
    pairs.abort_all();
    farewell(pace, connection.close()).await
}

async fn reset(writer: &Writer, status: u32) {
    if let Some(closer) = writer.closer() {
        closer.reset(status).await;
    }
}

/// Why a forwarded connection did not end by itself.
enum Cut {
    /// The target was not reached, and why.
    Unreached(String),
    /// One side broke off.
    Broken,
}

async fn join<B: Backend>(backend: Arc<B>, pod: PodRef, port: NonZeroU16, error: Incoming, data: Incoming) {
    let (Some(error), Some(end)) = (error.writer.closer(), data.writer.closer()) else {
        return;
    };
    let gone = data.writer.gone();
    let carried = async {
        let mut target = dial(&*backend, &pod, port).await.map_err(Cut::Unreached)?;
        let mut caller = tokio::io::join(data.reader, data.writer);
        let copied = tokio::io::copy_bidirectional(&mut caller, &mut target).await;
        copied.map(|_| ()).map_err(|_| Cut::Broken)
    };
    // A target that does not read is never done with what it was sent, and that is memory which others wait for.
    let result = tokio::select! {
        result = carried => result,
        () = gone.cancelled() => Err(Cut::Broken),
    };
    match result {
        Ok(()) => end.finish(Bytes::new()).await,
        Err(Cut::Broken) => end.reset(rst::CANCEL).await,
        Err(Cut::Unreached(text)) => {
            // Any text on the error stream is a failure to kubectl, so only what could not be reached is told there.
            error.finish(text.into()).await;
            return end.finish(Bytes::new()).await;
        }
    }
    error.finish(Bytes::new()).await;
}

/// Over WebSocket a caller cannot say that it has sent everything, so the pair ends when the target has.
async fn carry(target: Box<dyn Duplex>, mut reader: Reader, mut writer: Writer) {
    let (mut from, mut to) = tokio::io::split(target);
    let upwards = async {
        // A connection that broke off is as final as one that ended; either way the target is told.
        let _ = tokio::io::copy(&mut reader, &mut to).await;
        let _ = to.shutdown().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = tokio::io::copy(&mut from, &mut writer) => {}
        () = upwards => {}
    }
}

async fn dial<B: Backend>(backend: &B, pod: &PodRef, port: NonZeroU16) -> Result<Box<dyn Duplex>, String> {
    backend.dial(pod, port).await.map_err(|refusal| {
        let uid = pod.uid.as_deref().unwrap_or_default();
        format!("error forwarding port {port} to pod {}, uid {uid}: {refusal}", pod.name)
    })
}

/// The old form over WebSocket: one connection to each port named in the query, each with a data and an error channel.
pub(crate) async fn forward_websocket<B, T>(
    backend: Arc<B>,
    pod: PodRef,
    ports: Vec<NonZeroU16>,
    flavour: WebSocketFlavour,
    io: T,
    pace: Pace,
    stop: CancellationToken,
) -> Result<(), Broken>
where
    B: Backend,
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let numbered = || (0_u8..).step_by(2).zip(ports.iter().copied());
    let readable: Vec<u8> = numbered().map(|(channel, _)| channel).collect();
    let mut channels = websocket::Channels::start(io, flavour, &readable, pace).await;
    for (channel, port) in numbered() {
        let port = Bytes::copy_from_slice(&port.get().to_le_bytes());
        channels.send(channel, port.clone()).await;
        channels.send(channel + 1, port).await;
    }
    let mut pairs = JoinSet::new();
    for (channel, port) in numbered() {
        let (backend, pod) = (backend.clone(), pod.clone());
        let (Some(reader), writer) = (channels.reader(channel), channels.writer(channel)) else {
            continue;
        };
        let error = channels.writer(channel + 1).closer();
        pairs.spawn(async move {
            match (dial(&*backend, &pod, port).await, error) {
                (Ok(target), _) => carry(target, reader, writer).await,
                (Err(text), Some(error)) => error.finish(text.into()).await,
                (Err(_), None) => {}
            }
        });
    }
    let gone = channels.gone();
    tokio::select! {
        () = async { while pairs.join_next().await.is_some() {} } => {}
        () = gone.cancelled() => return Ok(()),
        () = channels.idle(pace.idle) => {}
        () = stop.cancelled() => {}
    }
    farewell(pace, channels.close()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &str, port: &str, request: Option<&str>) -> Headers {
        let pairs = [("streamtype", Some(kind)), ("port", Some(port)), ("requestid", request)];
        Headers::new(
            pairs
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?.to_owned()))),
        )
    }

    #[test]
    fn streams_without_a_number_pair_by_their_ids() {
        let error = label(5, &headers("error", "80", None)).unwrap();
        let data = label(7, &headers("data", "80", None)).unwrap();
        assert_eq!(error.request, data.request);
        let numbered = label(9, &headers("data", "80", Some("4"))).unwrap();
        assert_eq!((numbered.request.as_str(), numbered.port.get()), ("4", 80));
    }

    #[test]
    fn streams_without_a_port_or_of_another_kind_are_refused() {
        for (kind, port) in [("data", "0"), ("data", "70000"), ("data", "x"), ("stdin", "80")] {
            assert!(!admit(&headers(kind, port, None)), "{kind} {port}");
        }
        assert!(admit(&headers("data", "65535", None)));
    }
}
