//! A REAPI server under test, and the calls every check makes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::stream;
use russet_reapi::client::tonic::metadata::AsciiMetadataValue;
use russet_reapi::client::tonic::transport::{Channel, Endpoint};
use russet_reapi::client::tonic::{Code, Request, Status};
use russet_reapi::client::{
    ActionCacheClient, ByteStreamClient, CapabilitiesClient, ContentAddressableStorageClient, HealthClient,
};
use russet_reapi::digest::Function;
use russet_reapi::proto::bytestream::{ReadRequest, WriteRequest};
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{
    ActionResult, BatchUpdateBlobsRequest, CacheCapabilities, Digest, FindMissingBlobsRequest, GetActionResultRequest,
    GetCapabilitiesRequest, UpdateActionResultRequest,
};
use russet_telemetry::Secret;
use rustls::pki_types::CertificateDer;
use tokio::sync::OnceCell;

use super::secure::Secure;
use crate::http::server::mixed;
use crate::not_applicable;

/// What one message of an upload carries.
pub(super) const PIECE: usize = 64 * 1024;

/// A server under test.
#[derive(Debug)]
pub struct Target {
    pub channel: Channel,
    /// Instance name of every request.
    pub instance: String,
    /// May read and write the instance; without it the server is taken to be open.
    pub writer: Option<Secret<String>>,
    /// May read the instance.
    pub reader: Option<Secret<String>>,
    /// May read and write something else.
    pub stranger: Option<Secret<String>>,
    /// Whether the server decides as the cache contract does where the specification leaves a choice.
    pub contract: bool,
    capabilities: OnceCell<CacheCapabilities>,
    count: AtomicU64,
    run: u64,
}

impl Target {
    /// A server at `grpc://host:port`.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::over(Self::endpoint(url, "grpc://")?.connect_lazy()))
    }

    /// A server at `grpcs://host:port`, whose certificate comes from one of these authorities.
    pub fn secure(url: &str, trust: &[CertificateDer<'static>]) -> Result<Self> {
        let endpoint = Self::endpoint(url, "grpcs://")?;
        let uri = endpoint.uri().clone();
        let host = uri.host().with_context(|| format!("{url} has no host"))?;
        let port = uri.port_u16().with_context(|| format!("{url} has no port"))?;
        let connector = Secure::new(host.trim_matches(['[', ']']), port, trust)?;
        let origin = format!("https://{host}:{port}").parse().context("no origin")?;
        Ok(Self::over(
            endpoint.origin(origin).connect_with_connector_lazy(connector),
        ))
    }

    fn endpoint(url: &str, scheme: &str) -> Result<Endpoint> {
        let rest = url
            .strip_prefix(scheme)
            .with_context(|| format!("{url} does not begin with {scheme}"))?;
        Ok(Endpoint::from_shared(format!("http://{rest}"))
            .with_context(|| format!("{url} is no address"))?
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_mins(1))
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20))
    }

    fn over(channel: Channel) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            channel,
            instance: String::new(),
            writer: None,
            reader: None,
            stranger: None,
            contract: false,
            capabilities: OnceCell::new(),
            count: AtomicU64::new(0),
            run: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// A request with the writer's credential.
    pub fn request<M>(&self, message: M) -> Request<M> {
        as_caller(message, self.writer.as_ref())
    }

    pub fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel.clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }

    pub fn bytes(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub fn actions(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel.clone())
    }

    /// A body nobody used before, if it is long enough to be one; it compresses about as well as object files do.
    pub fn body(&self, length: usize) -> Bytes {
        let mark = mixed(self.run ^ (self.count.fetch_add(1, Ordering::Relaxed) << 40));
        let mut body = Vec::with_capacity(length + 64);
        let mut line = 0_u64;
        while body.len() < length {
            body.extend_from_slice(format!("{mark:016x} {line:x} of some output\n").as_bytes());
            line += 1;
        }
        body.truncate(length);
        body.into()
    }

    /// Something to name an upload or an action with.
    pub(super) fn name(&self) -> String {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-0000-4000-8000-{:012x}", self.run & 0xffff_ffff, number)
    }

    pub(super) async fn capabilities(&self) -> Result<&CacheCapabilities> {
        self.capabilities
            .get_or_try_init(|| async {
                let answer = CapabilitiesClient::new(self.channel.clone())
                    .get_capabilities(self.request(GetCapabilitiesRequest {
                        instance_name: self.instance.clone(),
                    }))
                    .await
                    .map_err(told)?
                    .into_inner();
                answer.cache_capabilities.context("a cache without cache capabilities")
            })
            .await
    }

    /// Digest functions that are advertised and that we can compute.
    pub(super) async fn functions(&self) -> Result<Vec<Function>> {
        let advertised = &self.capabilities().await?.digest_functions;
        Ok(Function::ALL
            .into_iter()
            .filter(|function| advertised.contains(&function.value()))
            .collect())
    }

    pub async fn missing(&self, digests: Vec<Digest>) -> Result<Vec<Digest>, Status> {
        self.missing_in(Function::Sha256, digests).await
    }

    pub(super) async fn missing_in(&self, function: Function, digests: Vec<Digest>) -> Result<Vec<Digest>, Status> {
        let request = FindMissingBlobsRequest {
            instance_name: self.instance.clone(),
            blob_digests: digests,
            digest_function: function.value(),
        };
        let answer = self.cas().find_missing_blobs(self.request(request)).await?;
        Ok(answer.into_inner().missing_blob_digests)
    }

    pub(super) async fn expect_missing(&self, digest: &Digest) -> Result<()> {
        let missing = self.missing(vec![digest.clone()]).await.map_err(told)?;
        ensure!(missing == [digest.clone()], "{} is there", digest.hash);
        Ok(())
    }

    /// Stores blobs in one batch, for checks that are about something else.
    pub async fn store(&self, bodies: &[&Bytes]) -> Result<Vec<Digest>> {
        let digests: Vec<Digest> = bodies.iter().map(|body| digest(body)).collect();
        let requests = bodies.iter().zip(&digests).map(|(body, digest)| Update {
            digest: Some(digest.clone()),
            data: (*body).clone(),
            compressor: 0,
        });
        let codes = self.update(requests.collect()).await.map_err(told)?;
        ensure!(codes.iter().all(|code| *code == 0), "a batch was refused: {codes:?}");
        Ok(digests)
    }

    /// A batch of updates; the code of each.
    pub(super) async fn update(&self, requests: Vec<Update>) -> Result<Vec<i32>, Status> {
        let request = BatchUpdateBlobsRequest {
            instance_name: self.instance.clone(),
            requests,
            digest_function: Function::Sha256.value(),
        };
        let answer = self.cas().batch_update_blobs(self.request(request)).await?;
        let code = |status: Option<russet_reapi::proto::rpc::Status>| status.map_or(0, |status| status.code);
        let responses = answer.into_inner().responses.into_iter();
        Ok(responses.map(|response| code(response.status)).collect())
    }

    /// `{instance}/`, or nothing.
    pub(super) fn prefix(&self) -> String {
        match self.instance.as_str() {
            "" => String::new(),
            instance => format!("{instance}/"),
        }
    }

    pub fn blob_name(&self, digest: &Digest) -> String {
        format!("{}blobs/{}/{}", self.prefix(), digest.hash, digest.size_bytes)
    }

    pub fn upload_name(&self, digest: &Digest) -> String {
        format!(
            "{}uploads/{}/blobs/{}/{}",
            self.prefix(),
            self.name(),
            digest.hash,
            digest.size_bytes
        )
    }

    pub async fn read(&self, name: &str, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
        let request = ReadRequest {
            resource_name: name.to_owned(),
            read_offset: offset,
            read_limit: limit,
        };
        let mut stream = self.bytes().read(self.request(request)).await?.into_inner();
        let mut body = Vec::new();
        while let Some(piece) = stream.message().await? {
            body.extend_from_slice(&piece.data);
        }
        Ok(body)
    }

    /// An upload in pieces from the beginning, finished; its committed size.
    pub async fn write(&self, name: &str, body: &Bytes) -> Result<i64, Status> {
        self.write_pieces(pieces(name, body, 0, true)).await
    }

    pub async fn write_pieces(&self, pieces: Vec<WriteRequest>) -> Result<i64, Status> {
        let request = self.request(stream::iter(pieces));
        Ok(self.bytes().write(request).await?.into_inner().committed_size)
    }

    pub(super) fn get(&self, action: &Digest) -> GetActionResultRequest {
        GetActionResultRequest {
            instance_name: self.instance.clone(),
            action_digest: Some(action.clone()),
            digest_function: Function::Sha256.value(),
            ..GetActionResultRequest::default()
        }
    }

    pub async fn result(&self, action: &Digest) -> Result<ActionResult, Status> {
        let answer = self.actions().get_action_result(self.request(self.get(action))).await?;
        Ok(answer.into_inner())
    }

    pub async fn record(&self, action: &Digest, result: ActionResult) -> Result<(), Status> {
        let request = UpdateActionResultRequest {
            instance_name: self.instance.clone(),
            action_digest: Some(action.clone()),
            action_result: Some(result),
            digest_function: Function::Sha256.value(),
            ..UpdateActionResultRequest::default()
        };
        self.actions().update_action_result(self.request(request)).await?;
        Ok(())
    }

    /// Fails with "not applicable" on servers that keep to the specification only.
    pub(super) fn contract(&self) -> Result<()> {
        if !self.contract {
            return not_applicable("the specification leaves it open");
        }
        Ok(())
    }

    pub(super) fn guarded(&self) -> Result<()> {
        if self.writer.is_none() {
            return not_applicable("no credential was given: the server is taken to be open");
        }
        Ok(())
    }
}

pub(super) fn as_caller<M>(message: M, token: Option<&Secret<String>>) -> Request<M> {
    let mut request = Request::new(message);
    let value = token.and_then(|token| AsciiMetadataValue::try_from(format!("Bearer {}", token.expose())).ok());
    if let Some(value) = value {
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Messages of an upload that begin at `offset` of the body.
pub fn pieces(name: &str, body: &Bytes, offset: usize, finish: bool) -> Vec<WriteRequest> {
    let mut at = offset;
    let mut pieces = Vec::new();
    loop {
        let end = body.len().min(at + PIECE);
        pieces.push(WriteRequest {
            // Only the first message has to name the resource.
            resource_name: if pieces.is_empty() {
                name.to_owned()
            } else {
                String::new()
            },
            write_offset: i64::try_from(at).unwrap_or(i64::MAX),
            finish_write: finish && end == body.len(),
            data: body.slice(at.min(end)..end),
        });
        at = end;
        if at == body.len() {
            return pieces;
        }
    }
}

/// SHA-256, as most clients use it.
pub fn digest(body: &[u8]) -> Digest {
    digest_in(Function::Sha256, body)
}

pub(super) fn digest_in(function: Function, body: &[u8]) -> Digest {
    let digest = function.digest(body);
    Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
    }
}

/// A status as an error of a check.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn told(status: Status) -> anyhow::Error {
    anyhow::anyhow!("{:?}: {}", status.code(), status.message())
}

/// Fails unless the call failed with one of these codes.
pub fn expect_code<V>(outcome: Result<V, Status>, codes: &[Code]) -> Result<()> {
    match outcome {
        Ok(_) => anyhow::bail!("succeeded, where {codes:?} is right"),
        Err(status) if codes.contains(&status.code()) => Ok(()),
        Err(status) => anyhow::bail!("{:?} ({}), where {codes:?} is right", status.code(), status.message()),
    }
}
