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
use russet_reapi::proto::reapi::batch_read_blobs_response::Response;
use russet_reapi::proto::reapi::batch_update_blobs_request::Request as Update;
use russet_reapi::proto::reapi::{
    ActionResult, BatchReadBlobsRequest, BatchUpdateBlobsRequest, CacheCapabilities, Digest, FindMissingBlobsRequest,
    GetActionResultRequest, GetCapabilitiesRequest, ServerCapabilities, UpdateActionResultRequest,
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

    pub(super) async fn server_capabilities(&self) -> Called<ServerCapabilities> {
        let request = self.request(GetCapabilitiesRequest {
            instance_name: self.instance.clone(),
        });
        let mut client = CapabilitiesClient::new(self.channel.clone());
        Ok(client.get_capabilities(request).await?.into_inner())
    }

    pub(super) async fn capabilities(&self) -> Result<&CacheCapabilities> {
        let ask = || async {
            let answer = self.server_capabilities().await?;
            answer.cache_capabilities.context("a cache without cache capabilities")
        };
        self.capabilities.get_or_try_init(ask).await
    }

    /// Digest functions that are advertised and that we can compute.
    pub(super) async fn functions(&self) -> Result<Vec<Function>> {
        let advertised = &self.capabilities().await?.digest_functions;
        Ok(Function::ALL
            .into_iter()
            .filter(|function| advertised.contains(&function.value()))
            .collect())
    }

    pub async fn missing(&self, digests: Vec<Digest>) -> Called<Vec<Digest>> {
        self.missing_in(Function::Sha256, digests).await
    }

    pub(super) async fn missing_in(&self, function: Function, digests: Vec<Digest>) -> Called<Vec<Digest>> {
        let request = FindMissingBlobsRequest {
            instance_name: self.instance.clone(),
            blob_digests: digests,
            digest_function: function.value(),
        };
        let answer = self.cas().find_missing_blobs(self.request(request)).await?;
        Ok(answer.into_inner().missing_blob_digests)
    }

    pub(super) async fn expect_missing(&self, digest: &Digest) -> Result<()> {
        let missing = self.missing(vec![digest.clone()]).await?;
        ensure!(missing == [digest.clone()], "{} is there", digest.hash);
        Ok(())
    }

    pub(super) async fn expect_present(&self, digest: &Digest) -> Result<()> {
        let missing = self.missing(vec![digest.clone()]).await?;
        ensure!(missing.is_empty(), "{} is missing", digest.hash);
        Ok(())
    }

    /// Stores blobs in one batch, for checks that are about something else.
    pub async fn store(&self, bodies: &[&Bytes]) -> Result<Vec<Digest>> {
        let updates = bodies.iter().map(|body| update(body, (*body).clone()));
        let codes = self.update(updates.collect()).await?;
        ensure!(codes.iter().all(|code| *code == 0), "a batch was refused: {codes:?}");
        Ok(bodies.iter().map(|body| digest(body)).collect())
    }

    /// A fresh body, stored.
    pub(super) async fn stored(&self, length: usize) -> Result<(Bytes, Digest)> {
        let body = self.body(length);
        self.store(&[&body]).await?;
        let digest = digest(&body);
        Ok((body, digest))
    }

    /// Stores a body as a stream.
    pub(super) async fn upload(&self, body: &Bytes) -> Result<Digest> {
        let digest = digest(body);
        let size = self.write(&self.upload_name(&digest), body).await?;
        ensure!(size == digest.size_bytes, "committed {size} of {}", digest.size_bytes);
        Ok(digest)
    }

    /// A batch of updates; the code of each.
    pub(super) async fn update(&self, requests: Vec<Update>) -> Called<Vec<i32>> {
        let request = self.request(batch(&self.instance, requests));
        let answer = self.cas().batch_update_blobs(request).await?;
        let code = |status: Option<russet_reapi::proto::rpc::Status>| status.map_or(0, |status| status.code);
        let responses = answer.into_inner().responses.into_iter();
        Ok(responses.map(|response| code(response.status)).collect())
    }

    /// Fails unless a blob is refused, with one of these codes itself, or with its batch.
    pub(super) async fn refuses(&self, update: Update, blob: &[i32], batch: &[Code]) -> Result<()> {
        match self.update(vec![update]).await {
            Err(told) => told.is(batch),
            Ok(codes) => {
                let refused = codes.iter().all(|code| blob.contains(code));
                let right = refused && codes.len() == 1;
                ensure!(right, "codes {codes:?}, where one of {blob:?} is right");
                Ok(())
            }
        }
    }

    /// The blobs of a batch, each with its code.
    pub(super) async fn read_batch(&self, digests: Vec<Digest>, compressors: &[i32]) -> Called<Vec<Response>> {
        let request = BatchReadBlobsRequest {
            instance_name: self.instance.clone(),
            digests,
            acceptable_compressors: compressors.to_vec(),
            digest_function: Function::Sha256.value(),
        };
        let answer = self.cas().batch_read_blobs(self.request(request)).await?;
        Ok(answer.into_inner().responses)
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
        let (prefix, name, hash) = (self.prefix(), self.name(), &digest.hash);
        format!("{prefix}uploads/{name}/blobs/{hash}/{}", digest.size_bytes)
    }

    /// Fails unless the blob is there with these bytes.
    pub(super) async fn holds(&self, digest: &Digest, body: &[u8]) -> Result<()> {
        let read = self.read(&self.blob_name(digest), 0, 0).await?;
        ensure!(read == body, "other bytes came of {}", digest.hash);
        Ok(())
    }

    pub async fn read(&self, name: &str, offset: i64, limit: i64) -> Called<Vec<u8>> {
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
    pub async fn write(&self, name: &str, body: &Bytes) -> Called<i64> {
        self.write_pieces(pieces(name, body, 0, true)).await
    }

    pub async fn write_pieces(&self, pieces: Vec<WriteRequest>) -> Called<i64> {
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

    /// The answer to a question for a result.
    pub(super) async fn ask(&self, request: GetActionResultRequest) -> Called<ActionResult> {
        let answer = self.actions().get_action_result(self.request(request)).await?;
        Ok(answer.into_inner())
    }

    pub async fn result(&self, action: &Digest) -> Called<ActionResult> {
        self.ask(self.get(action)).await
    }

    /// What the server answers when it records.
    pub(super) async fn acknowledged(&self, request: UpdateActionResultRequest) -> Called<ActionResult> {
        let answer = self.actions().update_action_result(self.request(request)).await?;
        Ok(answer.into_inner())
    }

    pub async fn record(&self, action: &Digest, result: ActionResult) -> Called<()> {
        let request = put(&self.instance, action, result);
        self.acknowledged(request).await.map(drop)
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
            resource_name: if pieces.is_empty() { name } else { "" }.to_owned(),
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

/// The question for a batch of updates to any instance.
pub(super) fn batch(instance: &str, requests: Vec<Update>) -> BatchUpdateBlobsRequest {
    BatchUpdateBlobsRequest {
        instance_name: instance.to_owned(),
        requests,
        digest_function: Function::Sha256.value(),
    }
}

/// The question to record a result in any instance.
pub(super) fn put(instance: &str, action: &Digest, result: ActionResult) -> UpdateActionResultRequest {
    UpdateActionResultRequest {
        instance_name: instance.to_owned(),
        action_digest: Some(action.clone()),
        action_result: Some(result),
        digest_function: Function::Sha256.value(),
        ..UpdateActionResultRequest::default()
    }
}

/// What names a blob after `blobs/`.
pub(super) fn path(function: Function, digest: &Digest) -> String {
    let segment = function.segment().map(|segment| format!("{segment}/"));
    format!("{}{}/{}", segment.unwrap_or_default(), digest.hash, digest.size_bytes)
}

pub(super) fn digest_in(function: Function, body: &[u8]) -> Digest {
    let digest = function.digest(body);
    Digest {
        hash: digest.hex(),
        size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
    }
}

/// An update of that blob, sent as `data`.
pub(super) fn update(body: &[u8], data: impl Into<Bytes>) -> Update {
    Update {
        digest: Some(digest(body)),
        data: data.into(),
        compressor: 0,
    }
}

/// A status as an error of a check.
#[derive(Debug, thiserror::Error)]
#[error("{:?}: {}", .0.code(), .0.message())]
pub struct Told(pub Status);

/// What came of a call.
pub type Called<T> = Result<T, Told>;

impl From<Status> for Told {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl Told {
    /// Fails unless it has one of these codes.
    pub(super) fn is(&self, codes: &[Code]) -> Result<()> {
        ensure!(codes.contains(&self.0.code()), "{self}, where {codes:?} is right");
        Ok(())
    }
}

/// Fails unless the call failed with one of these codes.
pub fn expect_code<V>(outcome: Result<V, impl Into<Told>>, codes: &[Code]) -> Result<()> {
    match outcome {
        Ok(_) => anyhow::bail!("succeeded, where {codes:?} is right"),
        Err(status) => status.into().is(codes),
    }
}
