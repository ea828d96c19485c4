//! `russet replay`: an incident of the past, staged again with real parts and told as it happens.

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::suggest;
use crate::table::{Colour, Table, Tone};
use anyhow::{Context, Result, anyhow};
use russet_scenarios::{self as scenarios, Narrator, Scenario};
use std::io::Write;
use std::time::Instant;

pub(crate) async fn replay(args: &cli::Replay, surroundings: &Surroundings) -> Result<Exit> {
    let colour = surroundings.stdout.colour;
    if args.list {
        print(&list(scenarios::all()))?;
        return Ok(Exit::Success);
    }
    let mut signals = Signals::listen().context("failed to listen for signals")?;
    // Dropping a story takes its cluster down; dying of the signal would leave that to the next run.
    let played = tokio::select! {
        exit = play(args, colour) => exit,
        signal = signals.next() => {
            let _ = writeln!(std::io::stderr(), "{signal}: the story is cut short");
            Ok(Exit::Interrupted)
        }
    };
    scenarios::end().await;
    played
}

async fn play(args: &cli::Replay, colour: Colour) -> Result<Exit> {
    let Some(name) = &args.name else {
        return replay_all(colour).await;
    };
    let scenario = scenarios::find(name).ok_or_else(|| {
        anyhow!(suggest::unknown(
            "incident",
            name,
            scenarios::all().iter().map(|scenario| scenario.name)
        ))
    })?;
    one(scenario, colour).await?;
    Ok(Exit::Success)
}

/// One after the other; the first broken promise does not hide the others.
async fn replay_all(colour: Colour) -> Result<Exit> {
    let mut exit = Exit::Success;
    for scenario in scenarios::all() {
        if let Err(error) = one(scenario, colour).await {
            let _ = writeln!(std::io::stderr(), "{}\n", crate::explain(&error));
            exit = Exit::Failure;
        }
    }
    Ok(exit)
}

async fn one(scenario: &Scenario, colour: Colour) -> Result<()> {
    let began = Instant::now();
    print(&format!(
        "{} ({})\n  What happened  {}\n  Must hold      {}\n\n",
        colour.paint(Tone::Warn, scenario.name),
        scenario.from,
        scenario.what_happened,
        scenario.must_hold
    ))?;
    let told = scenario.run(&mut Teller { colour }).await;
    told.with_context(|| format!("{}: the promise does not hold: {}", scenario.name, scenario.must_hold))?;
    let verdict = format!("it holds ({:.1} s)", began.elapsed().as_secs_f64());
    print(&format!("\n{}\n\n", colour.paint(Tone::Good, &verdict)))
}

fn list(all: &[Scenario]) -> String {
    let mut table = Table::new(&["NAME", "PROVES", "FROM", "WHAT HAPPENED", "MUST HOLD"]);
    for scenario in all {
        let Scenario {
            name,
            from,
            what_happened,
            must_hold,
            without,
            ..
        } = scenario;
        let proves = if without.is_some() { "the program" } else { "a part" };
        table.row([
            (*name).into(),
            proves.into(),
            (*from).into(),
            (*what_happened).into(),
            (*must_hold).into(),
        ]);
    }
    table.render(Colour::Never)
}

/// Tells the story on standard output.
struct Teller {
    colour: Colour,
}

impl Teller {
    fn tell(&self, sign: &str, tone: Tone, text: &str) {
        // A closed pipe ends the listening, not the story: its verdict is the exit code.
        let _ = print(&format!("  {} {text}\n", self.colour.paint(tone, sign)));
    }
}

impl Narrator for Teller {
    fn step(&mut self, text: &str) {
        self.tell("·", Tone::Dim, text);
    }

    fn bites(&mut self, text: &str) {
        self.tell("✗", Tone::Bad, text);
    }

    fn holds(&mut self, text: &str) {
        self.tell("✓", Tone::Good, text);
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("failed to write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_incident_is_listed_with_its_promise() {
        let text = list(scenarios::all());
        for scenario in scenarios::all() {
            assert!(
                text.lines()
                    .any(|line| line.starts_with(scenario.name) && line.contains(scenario.must_hold))
            );
        }
    }
}
