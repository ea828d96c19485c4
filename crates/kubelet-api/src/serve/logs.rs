//! Logs: which part is wanted, and how lines are written.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{Stream, StreamExt as _};
use jiff::{SignedDuration, Timestamp};

use crate::backend::{LogEntry, LogOptions, LogStream};
use crate::refusal::Refusal;
use crate::request::Query;

pub(super) fn options(query: &Query, now: Timestamp) -> Result<LogOptions, Refusal> {
    let seconds = query.number("sinceSeconds", 1)?;
    let time = query.get("sinceTime");
    let since = match (seconds, time) {
        (Some(_), Some(_)) => {
            return Err(Refusal::Unprocessable(
                "at most one of sinceTime or sinceSeconds may be given".to_owned(),
            ));
        }
        (Some(seconds), None) => {
            let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            // Longer ago than time itself is no bound at all.
            now.checked_sub(ago).ok()
        }
        (None, Some(text)) => Some(
            text.parse()
                .map_err(|_| Refusal::Unprocessable(format!("sinceTime must be an RFC 3339 time, not {text:?}")))?,
        ),
        (None, None) => None,
    };
    let tail = match query.get("tail") {
        // The old name.
        Some("all") => None,
        Some(_) => query.number("tail", 0)?,
        None => query.number("tailLines", 0)?,
    };
    Ok(LogOptions {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since,
        tail,
        limit_bytes: query.number("limitBytes", 1)?,
    })
}

/// Turns entries into text.
#[derive(Debug)]
struct Lines {
    timestamps: bool,
    since: Option<Timestamp>,
    left: Option<u64>,
    /// Inside a line that goes on, and whether that line is shown.
    within: Option<bool>,
}

impl Lines {
    fn write(&mut self, entry: &LogEntry) -> Bytes {
        let begins = self.within.is_none();
        let shown = self
            .within
            .unwrap_or_else(|| self.since.is_none_or(|since| entry.at >= since));
        self.within = entry.partial.then_some(shown);
        if !shown {
            return Bytes::new();
        }
        let mut line = BytesMut::with_capacity(entry.text.len() + 32);
        if begins && self.timestamps {
            line.put_slice(format!("{:.9} ", entry.at).as_bytes());
        }
        line.put_slice(&entry.text);
        if !entry.partial {
            line.put_u8(b'\n');
        }
        if let Some(left) = &mut self.left {
            line.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= u64::try_from(line.len()).unwrap_or(*left);
        }
        line.freeze()
    }

    fn done(&self) -> bool {
        self.left == Some(0)
    }
}

/// The text of a log. A piece per line, so that each is flushed on its own.
pub(super) fn text(entries: LogStream, options: &LogOptions) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let lines = Lines {
        timestamps: options.timestamps,
        since: options.since,
        left: options.limit_bytes,
        within: None,
    };
    futures::stream::unfold((entries, lines), async |(mut entries, mut lines)| {
        while !lines.done() {
            match entries.next().await? {
                Ok(entry) => {
                    let text = lines.write(&entry);
                    if !text.is_empty() {
                        return Some((Ok(text), (entries, lines)));
                    }
                }
                Err(error) => return Some((Err(error), (entries, lines))),
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn entry(second: i64, text: &'static str, partial: bool) -> LogEntry {
        LogEntry {
            at: at(second),
            text: Bytes::from_static(text.as_bytes()),
            partial,
        }
    }

    async fn shown(options: LogOptions) -> String {
        let entries = [
            entry(0, "old ", true),
            entry(2, "line", false),
            entry(2, "new", false),
            entry(3, "cut", true),
        ];
        let pieces: Vec<_> = text(futures::stream::iter(entries.map(Ok)).boxed(), &options)
            .collect()
            .await;
        pieces
            .into_iter()
            .map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn partial_lines_are_joined_and_stamped_once() {
        assert_eq!(shown(LogOptions::default()).await, "old line\nnew\ncut");
        let stamped = shown(LogOptions {
            timestamps: true,
            ..LogOptions::default()
        })
        .await;
        assert_eq!(
            stamped,
            "2023-11-14T22:13:20.000000000Z old line\n2023-11-14T22:13:22.000000000Z new\n2023-11-14T22:13:23.000000000Z cut"
        );
    }

    #[tokio::test]
    async fn a_line_is_as_old_as_its_beginning() {
        let since = Some(at(1));
        let found = shown(LogOptions {
            since,
            ..LogOptions::default()
        })
        .await;
        assert_eq!(found, "new\ncut");
    }

    #[tokio::test]
    async fn the_byte_limit_cuts_inside_a_line_and_counts_the_stamp() {
        let limited = LogOptions {
            timestamps: true,
            limit_bytes: Some(33),
            ..LogOptions::default()
        };
        assert_eq!(shown(limited).await, "2023-11-14T22:13:20.000000000Z ol");
    }

    #[test]
    fn options_are_read_as_the_apiserver_writes_them() {
        let parse = |text| options(&Query::parse(Some(text)).unwrap(), at(100));
        let all = parse("follow=true&previous=true&timestamps=true&sinceSeconds=10&tailLines=3&limitBytes=9").unwrap();
        assert!(all.follow && all.previous && all.timestamps);
        assert_eq!((all.since, all.tail, all.limit_bytes), (Some(at(90)), Some(3), Some(9)));
        assert_eq!(parse("sinceTime=2023-11-14T22:13:20Z").unwrap().since, Some(at(0)));
        assert_eq!(parse("tail=all").unwrap().tail, None);
        for wrong in [
            "tailLines=x",
            "sinceSeconds=0",
            "sinceTime=yesterday",
            "sinceTime=2023-11-14T22:13:20Z&sinceSeconds=1",
        ] {
            assert_eq!(parse(wrong).unwrap_err().status().as_u16(), 422, "{wrong}");
        }
    }
}
