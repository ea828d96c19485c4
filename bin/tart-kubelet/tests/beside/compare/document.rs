//! `docs/beside-a-kubelet.md`: every Pod, and whether the two kubelets tell the same of it.

use std::fmt::Write as _;

use super::differences::{ANY, Chance, Difference};
use super::{Case, JUSTIFIED, all};

const HEAD: &str = "# Beside a stock kubelet

`tart-kubelet` runs Pods as virtual machines and tells of them what a kubelet tells. How true that is, is tested: the Pods below run in one
cluster on a stock kubelet v1.35 with containerd and on `tart-kubelet` with the emulated `tart`, the same is done to both, and every write of
their status is recorded. Compared are the sequences of the phase with its reason, of each condition with its reason, and of each container's
state, last state, last words, restarts, readiness and start. Texts of messages, times and addresses are not compared. An end of a container
that anything followed is left out of its states: whether such a moment is written at all is chance, and the last state tells of it anyway.

Where the two differ the test fails, unless the difference is listed here; it fails as well when a listed difference is not seen, save for
those that depend on who is faster. A stock kubelet may put two news into one write or not, so what differs is run again, three times at
most. `tart-kubelet` has to tell the same every time; where it depends on who is faster what it tells, each way is listed. Where only the
stock kubelet tells what comes first, `tart-kubelet` tells what is listed, always.

Run it, as root, with

```console
$ cargo test --package russet-tart-kubelet --test beside
```

This file is made from the list of the test; write it anew with `INSTA_UPDATE=always cargo test --package russet-tart-kubelet --test beside document`.
";

/// The whole document.
pub(crate) fn document() -> String {
    let cases = all();
    let mut text = HEAD.to_owned();
    let differs = |case: &Case| JUSTIFIED.iter().any(|known| known.cases.contains(&case.name));
    let same = cases.iter().filter(|case| !differs(case)).count();
    let _ = writeln!(
        text,
        "\n## Pods\n\nOf {} Pods, {same} are told of in the same way.\n\n| Pod | What it shows | What is done | Told |\n| --- | --- | --- | --- |",
        cases.len(),
    );
    for case in &cases {
        let numbers: Vec<String> = (1..)
            .zip(JUSTIFIED)
            .filter(|(_, known)| known.cases.contains(&case.name))
            .map(|(number, _)| format!("[{number}](#difference-{number})"))
            .collect();
        let told = if numbers.is_empty() {
            "the same".to_owned()
        } else {
            format!("otherwise: {}", numbers.join(", "))
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {told} |",
            case.name,
            case.shows,
            case.story().replace('|', "\\|")
        );
    }
    text.push_str("\n## Differences\n");
    for (number, difference) in (1..).zip(JUSTIFIED) {
        one(&mut text, number, difference);
    }
    text
}

fn one(text: &mut String, number: usize, difference: &Difference) {
    let told = |told: &str| match told {
        "" => "nothing".to_owned(),
        ANY => ANY.to_owned(),
        told => format!("`{told}`"),
    };
    let cases: Vec<String> = difference.cases.iter().map(|case| format!("`{case}`")).collect();
    let _ = writeln!(
        text,
        "\n### Difference {number}\n\n{}{}\n\n- Pods: {}\n- Aspect: {}\n- A stock kubelet: {}\n- `tart-kubelet`: {}",
        difference.why,
        match difference.chance {
            Chance::Nobody => "",
            Chance::Stock => " A stock kubelet may tell the same as `tart-kubelet`, by who is faster.",
            Chance::Ours => " `tart-kubelet` may tell the same as a stock kubelet, by who is faster.",
        },
        cases.join(", "),
        difference.aspect,
        told(difference.stock),
        told(difference.ours),
    );
}

pub(crate) mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the switch of golden files, as insta has it")]
    pub(crate) fn the_document_is_the_one_in_the_repository() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/beside-a-kubelet.md");
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            std::fs::write(path, document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == document(),
            "docs/beside-a-kubelet.md is out of date; write it anew with \
             `INSTA_UPDATE=always cargo test --package russet-tart-kubelet --test beside document`"
        );
    }
}
