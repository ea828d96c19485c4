//! The key of a GitHub App came in the other of two forms, the ids with a line break, and no runner could register.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::rsa::KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use russet_github::config::Proxy;
use russet_github::credentials::{APP_ID, INSTALLATION_ID, Invalid, PRIVATE_KEY};
use russet_github::{Client, Config, Context, Credentials, Org};
use russet_sim_github::{AppKey, Deed, Options, Sim};

use super::{Play, Scenario, Stage};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "pem-and-spaces",
    from: "S3",
    what_happened: "a key in PKCS#1 instead of PKCS#8, and ids with a stray line break, were refused",
    must_hold: "both forms are read, whitespace does not matter, and a bad value is named by its field and never shown",
    without: None,
    play: Play::Plain(run),
};

const APP: u64 = 1001;
const INSTALLATION: u64 = 2002;
const CANARY: &str = "canary-7f3a";
const TOKENS: &str = "/orgs/*/actions/runners/registration-token";

fn run<'a>(stage: &'a mut Stage<'_, ()>) -> BoxFuture<'a, Result<()>> {
    async move {
        stage.step("an emulated GitHub with an App in the organisation tuist, and its key in both forms");
        let key = AppKey::generate()?;
        let deeds = vec![
            Deed::AddApp {
                app: APP,
                public_key: key.public_pem(),
            },
            Deed::install(APP, INSTALLATION, "tuist"),
        ];
        let sim = Sim::start(Options {
            deeds,
            ..Options::default()
        })
        .await?;
        naive(stage, &key)?;
        read(stage, &key, &sim).await?;
        refused(stage, &key)
    }
    .boxed()
}

/// A reader that knows one form and takes numbers as they are.
fn naive(stage: &mut Stage<'_, ()>, key: &AppKey) -> Result<()> {
    stage.step("a naive reader expects PKCS#8 and numbers without a line break");
    ensure!(pkcs8_only(&key.pkcs8_pem())?, "the naive reader reads nothing at all");
    ensure!(!pkcs8_only(&key.pkcs1_pem())?, "the staged fault did not bite");
    stage.bites("it refuses the very file that GitHub offers for download, which is PKCS#1");
    let Err(why) = format!("{APP}\n").parse::<u64>() else {
        anyhow::bail!("the staged fault did not bite");
    };
    stage.bites(format!("it refuses the number of the App as `echo` wrote it: {why}"));
    Ok(())
}

/// Whether a reader that knows only PKCS#8 reads it.
fn pkcs8_only(pem: &str) -> Result<bool> {
    let inside: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    Ok(KeyPair::from_pkcs8(&STANDARD.decode(inside)?).is_ok())
}

async fn read(stage: &mut Stage<'_, ()>, key: &AppKey, sim: &Sim) -> Result<()> {
    stage.step("ours gets both forms, each clean and as people paste them, with spaces and line breaks around the ids");
    let org: Org = "tuist".parse()?;
    let mut config = Config::new(sim.url())?;
    config.proxy = Proxy::Never;
    let mut minted = 0;
    for (form, pem) in [("PKCS#1", key.pkcs1_pem()), ("PKCS#8", key.pkcs8_pem())] {
        let pasted = [
            ("clean", pem.clone()),
            ("with CRLF", pem.replace('\n', "\r\n")),
            ("indented", format!("  {}\n\n", pem.replace('\n', "\n    "))),
            ("on one line", pem.trim().replace('\n', " ")),
            ("without its last line break", pem.trim_end().to_owned()),
        ];
        for (how, pem) in pasted {
            let data = secret(&format!(" {APP}\n"), &format!("\t{INSTALLATION}\r\n"), &pem);
            let credentials = Credentials::from_data(&data).with_context(|| format!("{form} {how}"))?;
            let client = Client::new(&config, credentials, Context::default())?;
            let token = client
                .registration_token(&org)
                .await
                .with_context(|| format!("{form} {how}"))?;
            ensure!(!token.token.expose().is_empty(), "{form} {how}: an empty token");
            minted += 1;
        }
    }
    let asked = sim.handle().calls("POST", TOKENS);
    ensure!(asked == minted, "{minted} tokens from {asked} requests");
    stage.holds(format!("GitHub gave a registration token for each of the {minted}"));
    Ok(())
}

fn refused(stage: &mut Stage<'_, ()>, key: &AppKey) -> Result<()> {
    stage.step("ours gets what cannot be read");
    let (app, installation, pem) = (APP.to_string(), INSTALLATION.to_string(), key.pkcs1_pem());
    let garbled = pem.replacen('M', CANARY, 1);
    let foreign = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----\n");
    for (field, data) in [
        (APP_ID, secret(CANARY, &installation, &pem)),
        (APP_ID, secret(" \n", &installation, &pem)),
        (INSTALLATION_ID, secret(&app, &format!("2002 {CANARY}"), &pem)),
        (PRIVATE_KEY, secret(&app, &installation, CANARY)),
        (PRIVATE_KEY, secret(&app, &installation, &garbled)),
        (PRIVATE_KEY, secret(&app, &installation, &foreign)),
    ] {
        let Err(error) = Credentials::from_data(&data) else {
            anyhow::bail!("a bad {field} was taken");
        };
        names_only(error, field)?;
    }
    stage.holds("each bad value is named by its field, with what to do about it, and none is repeated");
    Ok(())
}

fn names_only(error: Invalid, field: &str) -> Result<()> {
    let said = format!("{error} {error:?}");
    ensure!(
        error.field() == field && error.to_string().contains(field),
        "{field} is not named: {said}"
    );
    ensure!(!said.contains(CANARY), "{field} is repeated");
    Ok(())
}

fn secret(app: &str, installation: &str, pem: &str) -> BTreeMap<String, Vec<u8>> {
    let fields = [(APP_ID, app), (INSTALLATION_ID, installation), (PRIVATE_KEY, pem)];
    fields
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .into()
}
