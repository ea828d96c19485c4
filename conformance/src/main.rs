//! Points the conformance suites at any server, and says what it found.
//!
//! `cargo run -p russet-conformance -- http --url http://127.0.0.1:4000`

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use russet_conformance::http::tokens::Forge;
use russet_conformance::http::{self, Credentials, Dialect, Server, Transport};
use russet_conformance::reapi::{self, Target};
use russet_conformance::{Report, document, run, select};
use russet_stages::kura::Program;
use russet_telemetry::Secret;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Black-box conformance of a build cache.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the cache contract, and attack it, over HTTP
    Http(Box<Http>),
    /// Check the Remote Execution API
    Reapi(Reapi),
    /// List the checks and what each proves
    List,
    /// Start a kura, run everything against it and the servers given, and print docs/conformance.md
    Document(Document),
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Speaks {
    /// The whole contract
    Contract,
    /// Bazel's HTTP cache only
    Bazel,
}

#[derive(Debug, Args)]
struct Http {
    /// Where the server is: http://host:port or https://host:port
    #[arg(long)]
    url: String,
    /// Which routes it has
    #[arg(long, value_enum, default_value = "contract")]
    dialect: Speaks,
    /// Speak HTTP/2 (with prior knowledge where there is no TLS)
    #[arg(long)]
    http2: bool,
    /// Authority of its certificate (PEM); needed for https
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// The account it serves
    #[arg(long, default_value = "default")]
    tenant: String,
    /// A scratch project; checks write into it
    #[arg(long, default_value = "conformance")]
    project: String,
    /// Another project of the account, for --victim-token-file
    #[arg(long, default_value = "conformance-victim")]
    victim_project: String,
    #[command(flatten)]
    tokens: Tokens,
    /// Token that may read and write the other project and nothing else
    #[arg(long)]
    victim_token_file: Option<PathBuf>,
    /// The HS256 secret the server believes, to make tokens that it must not
    #[arg(long)]
    signing_secret_file: Option<PathBuf>,
    /// Let checks empty the scratch projects
    #[arg(long)]
    allow_clean: bool,
    /// How long the server may take to answer, or to cut off who stalls
    #[arg(long, default_value_t = 90)]
    patience_seconds: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Args)]
struct Reapi {
    /// Where the server is: grpc://host:port or grpcs://host:port
    #[arg(long)]
    url: String,
    /// Authority of its certificate (PEM); needed for grpcs
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// Instance name
    #[arg(long, default_value = "")]
    instance: String,
    #[command(flatten)]
    tokens: Tokens,
    #[command(flatten)]
    output: Output,
}

/// Credentials come from files: an argument list is world-readable.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "the names are the flags")]
struct Tokens {
    /// Token that may read and write; without one the server is taken to be open
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Token that may only read
    #[arg(long)]
    read_only_token_file: Option<PathBuf>,
    /// Token of another tenant
    #[arg(long)]
    other_tenant_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Output {
    /// Run only checks whose name contains this; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Document {
    /// The kura to start [default: the one beside this program]
    #[arg(long)]
    kura: Option<PathBuf>,
    /// Another server that speaks Bazel's HTTP cache, as name=http://host:port
    #[arg(long)]
    bazel: Vec<String>,
    /// Another REAPI server, as name=grpc://host:port
    #[arg(long)]
    reapi: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match act(Cli::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn act(command: Command) -> Result<ExitCode> {
    match command {
        Command::Http(args) => {
            let server = server(&args)?;
            let report = run(&select(http::all(), &args.output.only), &server).await;
            tell(&report, &args.output)
        }
        Command::Reapi(args) => {
            let mut target = match &args.ca_file {
                Some(path) => Target::secure(&args.url, &authorities(path)?)?,
                None => Target::new(&args.url)?,
            };
            target.instance.clone_from(&args.instance);
            target.writer = secret(args.tokens.token_file.as_deref())?;
            target.reader = secret(args.tokens.read_only_token_file.as_deref())?;
            target.stranger = secret(args.tokens.other_tenant_token_file.as_deref())?;
            let report = run(&select(reapi::all(), &args.output.only), &target).await;
            tell(&report, &args.output)
        }
        Command::List => {
            print(&document::list())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Document(args) => {
            let program = args.kura.map_or_else(Program::find, |path| Ok(Program::at(path)))?;
            let others = document::Others {
                bazel: named(&args.bazel)?,
                reapi: named(&args.reapi)?,
            };
            print(&document::write(&program, &others).await?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn tell(report: &Report, output: &Output) -> Result<ExitCode> {
    if output.json {
        print(&format!("{:#}\n", report.json()))?;
    } else {
        print(&report.table())?;
    }
    // Nothing that was run proves nothing.
    let failed = report.failures().next().is_some() || report.passed() == 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("failed to write to standard output")
}

fn named(list: &[String]) -> Result<Vec<(String, String)>> {
    list.iter()
        .map(|text| {
            let (name, url) = text
                .split_once('=')
                .with_context(|| format!("{text} is not name=url"))?;
            Ok((name.to_owned(), url.to_owned()))
        })
        .collect()
}

fn secret(file: Option<&Path>) -> Result<Option<Secret<String>>> {
    file.map(|path| {
        let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        Ok(Secret::new(text.trim().to_owned()))
    })
    .transpose()
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || -> Result<Vec<CertificateDer<'static>>> {
        Ok(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
    };
    read().with_context(|| format!("failed to read {}", path.display()))
}

fn server(args: &Http) -> Result<Server> {
    let mut server = Server::new(&args.url)?;
    server.transport = match (server.transport.is_tls(), args.http2) {
        (false, false) => Transport::Http1,
        (false, true) => Transport::H2c,
        (true, false) => Transport::TlsHttp1,
        (true, true) => Transport::TlsHttp2,
    };
    server.dialect = match args.dialect {
        Speaks::Contract => Dialect::Contract,
        Speaks::Bazel => Dialect::Bazel,
    };
    if let Some(path) = &args.ca_file {
        server.trust = authorities(path)?;
    }
    anyhow::ensure!(
        !server.transport.is_tls() || !server.trust.is_empty(),
        "https needs --ca-file with the authority of the server's certificate"
    );
    server.tenant.clone_from(&args.tenant);
    server.project.clone_from(&args.project);
    server.victim_project.clone_from(&args.victim_project);
    server.may_clean = args.allow_clean;
    server.patience = Duration::from_secs(args.patience_seconds);
    server.credentials = Credentials {
        writer: secret(args.tokens.token_file.as_deref())?,
        reader: secret(args.tokens.read_only_token_file.as_deref())?,
        stranger: secret(args.tokens.other_tenant_token_file.as_deref())?,
        victim: secret(args.victim_token_file.as_deref())?,
        forge: secret(args.signing_secret_file.as_deref())?.map(|secret| Forge::Hmac(Arc::new(secret))),
    };
    Ok(server)
}
