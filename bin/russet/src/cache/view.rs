//! The two builds as a table.

use super::{Round, Verdict};
use crate::table::{Cell, Colour, Table, Tone};
use russet_clients::Tool;
use std::fmt::Write as _;

pub(super) fn list(tools: &[Tool]) -> String {
    let mut table = Table::new(&["TOOL", "SPEAKS", "COMES FROM"]);
    for tool in tools {
        table.row([tool.name().into(), tool.protocol().into(), tool.comes_from().into()]);
    }
    table.render(Colour::Never)
}

/// Hits are what counts, and both sides have to agree: a tool that says nothing is taken at the server's word.
pub(super) fn verdict(rounds: &[Round]) -> Verdict {
    let built = rounds.iter().all(|round| round.build.exit.success());
    let last = rounds.last();
    let claimed = last.is_some_and(|round| round.build.claim.hits != Some(0));
    let counted = last.is_some_and(|round| round.counted.hits > 0);
    if built && claimed && counted {
        Verdict::Hits
    } else {
        Verdict::NoHits
    }
}

pub(super) fn render(tool: Tool, rounds: &[Round], colour: Colour) -> String {
    let mut table = Table::new(&[
        "BUILD",
        "RESULT",
        "SECONDS",
        "TOOL SAYS",
        "SERVER: HITS",
        "MISSES",
        "STORED",
    ]);
    for (index, round) in rounds.iter().enumerate() {
        let exit = round.build.exit;
        let result = if exit.success() {
            Cell::new("built", Tone::Good)
        } else {
            Cell::new(exit.to_string(), Tone::Bad)
        };
        table.row([
            format!("{tool} {}", index + 1).into(),
            result,
            format!("{:.1}", round.build.took.as_secs_f64()).into(),
            claim(round).into(),
            round.counted.hits.to_string().into(),
            round.counted.misses.to_string().into(),
            round.counted.stored.to_string().into(),
        ]);
    }
    let mut text = table.render(colour);
    let (sentence, tone) = match verdict(rounds) {
        Verdict::Hits => (format!("{tool} works with this cache"), Tone::Good),
        Verdict::NoHits => (format!("{tool} took nothing from this cache"), Tone::Bad),
    };
    let _ = writeln!(text, "\n{}", colour.paint(tone, &sentence));
    text
}

fn claim(round: &Round) -> String {
    match (round.build.claim.hits, round.build.claim.misses) {
        (Some(hits), Some(misses)) => format!("{hits} from cache, {misses} done here"),
        (Some(hits), None) => format!("{hits} from cache"),
        (None, _) => "nothing about its cache".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_clients::{Build, Claim, Counts, Exit};
    use std::time::Duration;

    fn round(code: i32, claim: (Option<u64>, Option<u64>), counted: (u64, u64, u64)) -> Round {
        Round {
            build: Build {
                exit: Exit::Code(code),
                claim: Claim {
                    hits: claim.0,
                    misses: claim.1,
                },
                output: String::new(),
                took: Duration::from_millis(4200),
            },
            counted: Counts {
                hits: counted.0,
                misses: counted.1,
                stored: counted.2,
                known: 0,
            },
        }
    }

    #[test]
    fn two_builds_are_shown_side_by_side() {
        let rounds = [
            round(0, (Some(0), Some(1)), (0, 1, 1)),
            round(0, (Some(1), Some(0)), (1, 0, 0)),
        ];
        insta::assert_snapshot!(render(Tool::Gradle, &rounds, Colour::Never));
        assert!(matches!(verdict(&rounds), Verdict::Hits));
    }

    #[test]
    fn hits_that_only_one_side_saw_are_none() {
        let cold = || round(0, (Some(0), Some(1)), (0, 1, 1));
        for second in [
            round(0, (Some(0), Some(1)), (1, 0, 0)),
            round(0, (Some(1), Some(0)), (0, 0, 0)),
            round(1, (Some(1), Some(0)), (1, 0, 0)),
        ] {
            assert!(matches!(verdict(&[cold(), second]), Verdict::NoHits));
        }
        let silent = round(0, (None, None), (3, 0, 0));
        assert!(matches!(verdict(&[cold(), silent]), Verdict::Hits));
    }

    #[test]
    fn every_tool_is_listed() {
        let text = list(&Tool::ALL);
        for tool in Tool::ALL {
            assert!(text.lines().any(|line| line.starts_with(tool.name())), "{tool}");
        }
    }
}
