//! The table of `russet status`.

mod fleet;

use super::document::{Account, Cluster, Document, Health, Part};
use crate::state::run::PartState;
use crate::table::{Cell, Colour, Table, Tone};
use std::path::Path;

/// The whole picture as text.
pub fn render(document: &Document, colour: Colour) -> String {
    let mut out = headline(document, colour);
    if !document.parts.is_empty() {
        out.push('\n');
        out.push_str(&parts(document).render(colour));
    }
    if let Some(cluster) = &document.cluster {
        out.push('\n');
        let mut facts = facts(cluster);
        if let Some(account) = &document.account {
            money(&mut facts, account);
        }
        out.push_str(&facts.render(colour));
    }
    if let Some(fleet) = document.cluster.as_ref().and_then(|cluster| cluster.fleet.as_ref()) {
        out.push_str(&fleet::render(fleet, colour));
    }
    if !document.problems.is_empty() && document.state != Health::Stopped {
        out.push('\n');
        for problem in &document.problems {
            out.push_str(&colour.paint(Tone::Bad, &format!("! {problem}")));
            out.push('\n');
        }
    }
    out
}

fn headline(document: &Document, colour: Colour) -> String {
    let state = colour.paint(health_tone(document.state), document.state.as_str());
    match (&document.up, document.state) {
        (Some(up), _) => {
            let ready = up
                .ready_after_seconds
                .map(|s| format!(", ready after {s:.1} s"))
                .unwrap_or_default();
            let memory = up.memory_bytes.map(|b| format!(", {}", bytes(b))).unwrap_or_default();
            format!(
                "russet {}: {state} (pid {}, up {}{ready}{memory})\n",
                up.version,
                up.pid,
                span(up.uptime_seconds)
            )
        }
        (None, Health::Stopped) => {
            format!(
                "russet: {state}. {}\n",
                document.problems.first().map_or("", String::as_str)
            )
        }
        (None, _) => format!("russet: {state}\n"),
    }
}

fn parts(document: &Document) -> Table {
    let mut table = Table::new(&[
        "PART", "STATE", "PID", "UPTIME", "RESTARTS", "MEMORY", "CPU", "ADDRESS", "LOG",
    ]);
    for part in &document.parts {
        table.row(part_row(part, &document.dir));
    }
    table
}

fn part_row(part: &Part, dir: &Path) -> [Cell; 9] {
    let restarts = Cell::new(
        part.restarts.to_string(),
        if part.restarts == 0 { Tone::Plain } else { Tone::Warn },
    );
    [
        part.name.clone().into(),
        Cell::new(part.state.to_string(), part_tone(part.state)),
        or_dash(part.pid.map(|pid| pid.to_string())),
        or_dash(part.uptime_seconds.map(span)),
        restarts,
        or_dash(part.memory_bytes.map(bytes)),
        or_dash(part.cpu_percent.map(|percent| format!("{percent:.1}%"))),
        or_dash(part.address.clone()),
        // Relative to the state directory: nine columns with absolute paths fit no terminal.
        part.log
            .strip_prefix(dir)
            .unwrap_or(&part.log)
            .display()
            .to_string()
            .into(),
    ]
}

fn facts(cluster: &Cluster) -> Table {
    let mut table = Table::new(&[]);
    let server = cluster.server.as_deref().unwrap_or("?");
    let answer = match (&cluster.version, cluster.reachable) {
        (Some(version), true) => Cell::new(format!("{server} ({version})"), Tone::Plain),
        (None, true) => Cell::new(server, Tone::Plain),
        (_, false) => Cell::new(format!("{server} (no answer)"), Tone::Bad),
    };
    table.row(["API server".into(), answer]);
    let context = cluster
        .context
        .as_ref()
        .map(|context| format!(" (context {context})"))
        .unwrap_or_default();
    table.row([
        "Kubeconfig".into(),
        format!("{}{context}", cluster.kubeconfig.display()).into(),
    ]);
    if cluster.reachable {
        table.row([
            "Nodes".into(),
            format!("{} ({} ready)", cluster.nodes.total, cluster.nodes.ready).into(),
        ]);
        let established = cluster.crds.iter().filter(|crd| crd.established).count();
        let tone = if established == cluster.crds.len() {
            Tone::Good
        } else {
            Tone::Bad
        };
        table.row([
            "CRDs".into(),
            Cell::new(format!("{established} of {} Established", cluster.crds.len()), tone),
        ]);
        let api = &cluster.cluster_api;
        let (text, tone) = match (api.installed, api.ready) {
            (true, true) => ("ready", Tone::Good),
            (true, false) => ("installed, not ready", if api.wanted { Tone::Bad } else { Tone::Warn }),
            (false, _) => ("not installed", if api.wanted { Tone::Bad } else { Tone::Dim }),
        };
        table.row(["Cluster API".into(), Cell::new(text, tone)]);
    }
    table
}

fn money(table: &mut Table, account: &Account) {
    let emulated = if account.emulated { " (emulated)" } else { "" };
    table.row([
        "Scaleway".into(),
        format!("{}{emulated}: {} hosts", account.url, account.servers).into(),
    ]);
    table.row([
        "Pool".into(),
        Cell::new(
            format!(
                "{} free, {} of them ready to adopt",
                account.pooled, account.pooled_ready
            ),
            if account.pooled_ready == 0 {
                Tone::Warn
            } else {
                Tone::Plain
            },
        ),
    ]);
    table.row([
        "Cost".into(),
        format!(
            "{} an hour, {} so far",
            euros(account.per_hour_micro_eur),
            euros(account.total_micro_eur)
        )
        .into(),
    ]);
}

/// To the cent, rounded up: a bill is never smaller than shown.
fn euros(micro: u64) -> String {
    let cents = micro.div_ceil(10_000);
    format!("€{}.{:02}", cents / 100, cents % 100)
}

pub(super) fn or_dash(text: Option<String>) -> Cell {
    text.map_or_else(|| Cell::new("-", Tone::Dim), Cell::from)
}

fn health_tone(health: Health) -> Tone {
    match health {
        Health::Ready => Tone::Good,
        Health::Starting | Health::Stopping => Tone::Warn,
        Health::Degraded | Health::Stopped => Tone::Bad,
    }
}

/// The colour of a part's state, here and in the progress view.
pub fn part_tone(state: PartState) -> Tone {
    match state {
        PartState::Running => Tone::Good,
        PartState::Starting | PartState::BackingOff => Tone::Warn,
        PartState::Failed => Tone::Bad,
        PartState::Stopped => Tone::Dim,
    }
}

/// `271 MiB`
pub fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes < 1024 * MIB {
        return format!("{} MiB", bytes.div_ceil(MIB));
    }
    let tenths = bytes / (1024 * MIB / 10);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

/// `42s`, `3m05s`, `2h07m`, `4d03h`: two units, as kubectl does.
pub fn span(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{degraded, healthy, stopped};
    use super::*;

    #[test]
    fn a_healthy_cluster_fits_one_screen() {
        insta::assert_snapshot!(render(&healthy(), Colour::Never));
    }

    #[test]
    fn what_is_wrong_is_said_below_the_table() {
        insta::assert_snapshot!(render(&degraded(), Colour::Never));
    }

    #[test]
    fn a_stopped_cluster_says_how_to_start_it() {
        insta::assert_snapshot!(render(&stopped(), Colour::Never));
    }

    #[test]
    fn sizes_and_spans_are_short() {
        let sizes = [bytes(1), bytes(271 << 20), bytes(3 << 29)];
        assert_eq!(sizes, ["1 MiB", "271 MiB", "1.5 GiB"]);
        let spans = [span(0), span(59), span(185), span(7620), span(356_400)];
        assert_eq!(spans, ["0s", "59s", "3m05s", "2h07m", "4d03h"]);
    }
}
