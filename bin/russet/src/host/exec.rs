//! `russet host exec`: a command on a Mac.
//!
//! The key is the fleet's, from its Secret. The host must show the key it showed when it was set up; one that nobody has logged in
//! to yet is not trusted by this command first.

use super::find;
use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::up::fleet;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::machine::AddressType;
use russet_bootstrap::ssh::{self, Auth, HostKeyPin, Limits, Stream, Target};
use russet_telemetry::Secret;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

/// What a shell says of a command that was ended by a signal.
const BY_SIGNAL: u8 = 128;

pub(super) async fn exec(args: &cli::HostExec, surroundings: &Surroundings) -> Result<Exit> {
    let (client, layout) = find::client(&args.host, surroundings).await?;
    let machine = find::machine(&client, &args.host).await?;
    let login = login(&client, &machine).await?;
    let target = Target {
        address: SocketAddr::new(
            address(&machine)?,
            args.port.unwrap_or_else(|| fleet::ssh_port(&layout)),
        ),
        user: login.user,
        auth: Auth::Key(login.key),
        pin: Some(login.pin),
    };
    let session = ssh::connect(&target, &Limits::default()).await?;
    let command = command(&args.command);
    let sink = |stream: Stream, bytes: &[u8]| {
        // Whoever closed our output has read enough; the command still ends as it ends.
        let _ = match stream {
            Stream::Output => std::io::stdout()
                .write_all(bytes)
                .and_then(|()| std::io::stdout().flush()),
            Stream::Error => std::io::stderr().write_all(bytes),
        };
    };
    let ended = tokio::select! {
        ended = session.stream(&command, sink) => ended?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    session.close().await;
    Ok(match ended {
        ssh::Exit::Code(code) => Exit::Command(u8::try_from(code).unwrap_or(u8::MAX)),
        ssh::Exit::Signal(signal) => {
            let _ = writeln!(std::io::stderr(), "the command was ended by the signal {signal}");
            Exit::Command(BY_SIGNAL)
        }
    })
}

/// One word is a line for the shell of the host; several are a program and its arguments, which reach it as they are.
fn command(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

struct Login {
    user: String,
    key: Secret<String>,
    pin: HostKeyPin,
}

fn address(machine: &ScalewayAppleSiliconMachine) -> Result<IpAddr> {
    let addresses = machine.status.iter().flat_map(|status| &status.addresses);
    let mut dialled =
        addresses.filter(|address| matches!(address.type_, AddressType::ExternalIp | AddressType::InternalIp));
    dialled
        .find_map(|address| address.address.parse().ok())
        .with_context(|| {
            format!(
                "the Mac {:?} has no address yet; see `russet status`",
                machine.name_any()
            )
        })
}

async fn login(client: &Client, machine: &ScalewayAppleSiliconMachine) -> Result<Login> {
    let namespace = machine.namespace().unwrap_or_default();
    let name = machine.name_any();
    let secrets: Api<KubeSecret> = Api::namespaced(client.clone(), &namespace);
    let of_host = secrets
        .get_opt(&format!("{name}-bootstrap"))
        .await
        .context("failed to read how to log in to the host")?;
    let pin = of_host.as_ref().and_then(|secret| text(secret, "host-fingerprint"));
    let (Some(of_host), Some(pin)) = (of_host, pin) else {
        bail!("nobody has logged in to {name:?} yet, so its host key is not known; see `russet host steps {name}`");
    };
    let fleet = machine.spec.fleet_name.clone().filter(|fleet| !fleet.is_empty());
    let group = fleet.unwrap_or_else(|| format!("{namespace}-{name}"));
    // The provider keeps keys in a namespace of its choice.
    let named = ListParams::default().fields(&format!("metadata.name={group}-ssh"));
    let found = Api::<KubeSecret>::all(client.clone())
        .list(&named)
        .await
        .context("failed to look for the key of the fleet")?;
    let key = found.items.iter().find_map(|secret| text(secret, "id_ed25519"));
    Ok(Login {
        user: text(&of_host, "ssh-username").unwrap_or_else(|| "m1".to_owned()),
        key: Secret::new(key.with_context(|| format!("there is no Secret {group}-ssh with the key of the fleet"))?),
        pin: pin.parse()?,
    })
}

fn text(secret: &KubeSecret, key: &str) -> Option<String> {
    let bytes = &secret.data.as_ref()?.get(key)?.0;
    let text = String::from_utf8(bytes.clone()).ok()?;
    Some(text).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_for_the_shell_and_several_are_for_a_program() {
        let words = |words: &[&str]| command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["ls | wc -l"]), "ls | wc -l");
        assert_eq!(words(&["echo", "a b", "it's", ""]), "echo 'a b' 'it'\\''s' ''");
        assert_eq!(words(&["launchctl", "print", "gui/501"]), "launchctl print gui/501");
    }
}
