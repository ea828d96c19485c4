//! Our own node, set up so that every check of the suites can be made: TLS, all credentials, a key to forge with, little patience.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use russet_stages::kura::{Node, Options, Program};
use russet_telemetry::Secret;
use rustls::pki_types::CertificateDer;

use super::http::tokens::{Es256, Forge, grants, reading};
use super::http::{Credentials, Server, Transport};
use super::reapi::Target;

const TENANT: &str = "acme";
const MINE: &str = "conformance";
const THEIRS: &str = "victim";
const SECRET: &str = "a-secret-of-the-conformance-suite-only";

/// How the node checks tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signed {
    Hs256,
    Es256,
}

/// Writes a fresh self-signed certificate and its key into the folder.
pub fn certify(folder: &Path) -> Result<CertificateDer<'static>> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    std::fs::write(folder.join("tls.crt"), made.cert.pem())?;
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem())?;
    std::fs::set_permissions(folder.join("tls.key"), std::fs::Permissions::from_mode(0o600))?;
    Ok(made.cert.der().clone())
}

/// The flags with which a node serves the certificate in the folder.
pub fn certificate(folder: &Path) -> [String; 4] {
    let path = |name: &str| folder.join(name).display().to_string();
    let flag = |name: &str| format!("--public-tls-{name}-path");
    [flag("cert"), path("tls.crt"), flag("key"), path("tls.key")]
}

/// A guarded node and what is needed to speak to it.
#[derive(Debug)]
pub struct Ours {
    pub node: Node,
    forge: Forge,
    authority: CertificateDer<'static>,
    _home: tempfile::TempDir,
}

impl Ours {
    pub async fn start(program: &Program, signed: Signed) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let file = |name: &str| home.path().join(name);
        let authority = certify(home.path())?;
        let path = |name: &str| file(name).display().to_string();
        let mut options = Options::default()
            .args(["--tenant-id", TENANT, "--bind-address", "127.0.0.1"])
            .args(["--http-header-timeout-ms", "1500", "--http-stall-timeout-ms", "1500"])
            .args(certificate(home.path()));
        let forge = match signed {
            Signed::Hs256 => {
                options = options.env("KURA_AUTH_JWT_SECRET", SECRET);
                Forge::Hmac(Arc::new(Secret::new(SECRET.to_owned())))
            }
            Signed::Es256 => {
                let key = Es256::generate()?;
                std::fs::write(file("jwt.pem"), &key.public_pem)?;
                options = options.args(["--auth-jwt-public-key-file".to_owned(), path("jwt.pem")]);
                Forge::Es256(Arc::new(key))
            }
        };
        let node = Node::start(program, home.path(), &options).await?;
        Ok(Self {
            node,
            forge,
            authority,
            _home: home,
        })
    }

    /// The node as a target of the HTTP suite.
    pub fn server(&self, transport: Transport) -> Result<Server> {
        let address = if transport.is_tls() {
            self.node.secure.context("kura speaks no TLS")?
        } else {
            self.node.address
        };
        let mut server = Server::new(&format!("http://{address}"))?;
        server.transport = transport;
        TENANT.clone_into(&mut server.tenant);
        MINE.clone_into(&mut server.project);
        THEIRS.clone_into(&mut server.victim_project);
        server.trust = vec![self.authority.clone()];
        server.may_clean = true;
        server.credentials = self.credentials()?;
        Ok(server)
    }

    /// The node as a target of the REAPI suite.
    pub fn target(&self) -> Result<Target> {
        self.trusted(Target::new(&format!("grpc://{}", self.node.address))?)
    }

    /// The same through TLS.
    pub fn secure_target(&self) -> Result<Target> {
        let address = self.node.secure.context("kura speaks no TLS")?;
        let trust = [self.authority.clone()];
        self.trusted(Target::secure(
            &format!("grpcs://127.0.0.1:{}", address.port()),
            &trust,
        )?)
    }

    fn trusted(&self, mut target: Target) -> Result<Target> {
        let Credentials {
            writer,
            reader,
            stranger,
            ..
        } = self.credentials()?;
        MINE.clone_into(&mut target.instance);
        target.writer = writer;
        target.reader = reader;
        target.stranger = stranger;
        target.contract = true;
        Ok(target)
    }

    fn credentials(&self) -> Result<Credentials> {
        let [mine, theirs, default] = [MINE, THEIRS, "default"].map(|project| format!("{TENANT}/{project}"));
        let token = |claims| self.forge.sign(&claims).map(|token| Some(Secret::new(token)));
        Ok(Credentials {
            writer: token(grants(&[TENANT], &[&mine, &default]))?,
            reader: token(reading(&[], &[&mine]))?,
            stranger: token(grants(&["stranger"], &[&format!("stranger/{MINE}")]))?,
            victim: token(grants(&[], &[&theirs]))?,
            forge: Some(self.forge.clone()),
        })
    }
}
