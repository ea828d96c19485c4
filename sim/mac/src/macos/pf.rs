//! The packet filter: rulesets as text, checked as far as scripts get them wrong. [facts 4]
//!
//! Rules are kept and printed as they were written; the real pfctl prints them in its own words.

use std::collections::{BTreeMap, BTreeSet};

/// What the kernel holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Pf {
    pub(super) enabled: bool,
    pub(super) tokens: BTreeSet<u64>,
    pub(super) next_token: u64,
    pub(super) main: Ruleset,
    pub(super) anchors: BTreeMap<String, Ruleset>,
}

/// One anchor, or the main ruleset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ruleset {
    pub(super) filter: Vec<String>,
    pub(super) translation: Vec<String>,
    pub(super) tables: BTreeSet<String>,
}

/// What a file asks for: rules, and anchors to load from other files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) rules: Ruleset,
    pub(super) loads: Vec<(String, String)>,
}

/// Why a file is not loaded: what pfctl prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad(pub(super) String);

/// The order pfctl wants.
fn class(keyword: &str) -> Option<u8> {
    Some(match keyword {
        "set" => 1,
        "scrub" | "scrub-anchor" => 2,
        "nat" | "nat-anchor" | "rdr" | "rdr-anchor" | "binat" | "binat-anchor" => 4,
        "pass" | "block" | "anchor" | "antispoof" => 5,
        "table" | "load" | "dummynet-anchor" | "dummynet" => 0,
        _ => return None,
    })
}

/// Reads a ruleset. Options are only for the main one.
pub(super) fn parse(name: &str, text: &str, is_main: bool) -> Result<Parsed, Bad> {
    let mut parsed = Parsed::default();
    let mut last = 0;
    let syntax = |number: usize| {
        Bad(format!(
            "{name}:{number}: syntax error\npfctl: Syntax error in config file: pf rules not loaded\n"
        ))
    };
    for (number, line) in logical_lines(text) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let keyword = match words.as_slice() {
            [] => continue,
            ["no", keyword, ..] | [keyword, ..] => *keyword,
        };
        if line.split_once('=').is_some_and(|(left, _)| is_macro(left)) {
            continue;
        }
        let Some(class) = class(keyword) else {
            return Err(syntax(number));
        };
        if class != 0 && class < last {
            return Err(Bad(format!(
                "{name}:{number}: Rules must be in order: options, normalization, queueing, translation, filtering\n\
                 pfctl: Syntax error in config file: pf rules not loaded\n"
            )));
        }
        last = last.max(class);
        if keyword == "set" && !is_main {
            return Err(syntax(number));
        }
        if line.matches('"').count() % 2 == 1 || line.matches('{').count() != line.matches('}').count() {
            return Err(syntax(number));
        }
        match (keyword, class) {
            ("table", _) => {
                let table = words
                    .get(1)
                    .map(|word| word.trim_matches(['<', '>']).to_owned())
                    .ok_or_else(|| syntax(number))?;
                if !parsed.rules.tables.insert(table.clone()) {
                    return Err(Bad(format!(
                        "{name}:{number}: cannot define table {table}: Resource busy\npfctl: Syntax error in config file: pf rules not loaded\n"
                    )));
                }
            }
            ("load", _) => match words.as_slice() {
                ["load", "anchor", anchor, "from", path] => {
                    parsed.loads.push((unquoted(anchor), unquoted(path)));
                }
                _ => return Err(syntax(number)),
            },
            (_, 4) => parsed.rules.translation.push(words.join(" ")),
            (_, 5) => parsed.rules.filter.push(words.join(" ")),
            _ => {}
        }
    }
    Ok(parsed)
}

fn is_macro(left: &str) -> bool {
    let left = left.trim();
    !left.is_empty() && left.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn unquoted(word: &str) -> String {
    word.trim_matches('"').to_owned()
}

/// Lines without comments, continued ones joined, with the number of their first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let (line, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let (first, so_far) = open.take().unwrap_or((number + 1, String::new()));
        let whole = format!("{so_far}{line}");
        if goes_on {
            open = Some((first, whole));
        } else {
            lines.push((first, whole.trim().to_owned()));
        }
    }
    lines.extend(open);
    lines
}

impl Pf {
    /// Loads a file into the main ruleset, or into an anchor; all of it or nothing. Files that it loads are read by `read`.
    pub(super) fn load(
        &mut self,
        anchor: Option<&str>,
        name: &str,
        text: &str,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<(), Bad> {
        let parsed = parse(name, text, anchor.is_none())?;
        let mut loaded = Vec::new();
        let mut busy = BTreeSet::new();
        for (child, path) in parsed.loads {
            let Some(text) = read(&path) else {
                return Err(Bad(format!(
                    "{path}: No such file or directory\npfctl: cannot open the main config file!: No such file or directory\npfctl: load anchors\n"
                )));
            };
            let rules = parse(&path, &text, false)?.rules;
            for table in &rules.tables {
                if !busy.insert(table.clone()) {
                    return Err(Bad(format!(
                        "{path}: cannot define table {table}: Resource busy\npfctl: load anchors\n"
                    )));
                }
            }
            let child = match anchor {
                Some(anchor) => format!("{anchor}/{child}"),
                None => child,
            };
            loaded.push((child, rules));
        }
        match anchor {
            None => self.main = parsed.rules,
            Some(anchor) => {
                self.anchors.insert(anchor.to_owned(), parsed.rules);
            }
        }
        self.anchors.extend(loaded);
        Ok(())
    }

    /// Whether the rules of an anchor are looked at: the main ruleset has to name it. [facts 4]
    pub(super) fn is_evaluated(&self, anchor: &str) -> bool {
        let names = |line: &String| {
            line.split_whitespace().nth(1).is_some_and(|name| {
                let name = name.trim_matches('"');
                name == anchor
                    || name
                        .strip_suffix("/*")
                        .is_some_and(|parent| anchor.starts_with(&format!("{parent}/")))
            })
        };
        self.enabled && (self.main.filter.iter().any(names) || self.main.translation.iter().any(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_out_of_order_and_unknown_words_are_refused_with_the_words_of_pfctl() {
        let bad = parse("/etc/pf.conf", "pass all\nnat on en0 from any to any -> (en0)\n", true).unwrap_err();
        assert!(bad.0.starts_with("/etc/pf.conf:2: Rules must be in order"), "{}", bad.0);
        let bad = parse("f", "\nallow all\n", true).unwrap_err();
        assert!(bad.0.starts_with("f:2: syntax error"), "{}", bad.0);
        assert!(parse("f", "set block-policy drop\n", false).is_err());
    }

    #[test]
    fn a_table_defined_twice_refuses_the_whole_file() {
        let bad = parse(
            "f",
            "table <x> { 10.0.0.0/8 }\ntable <x> { 10.0.0.0/8 }\nblock all\n",
            true,
        )
        .unwrap_err();
        assert!(bad.0.contains("cannot define table x: Resource busy"), "{}", bad.0);
    }

    #[test]
    fn an_anchor_counts_only_when_the_main_rules_name_it() {
        let mut pf = Pf {
            enabled: true,
            ..Pf::default()
        };
        pf.load(
            None,
            "f",
            "nat-anchor \"com.apple/*\"\nanchor \"com.apple/*\"\n",
            |_| None,
        )
        .unwrap();
        pf.load(Some("com.apple/tuist.vmnat"), "-", "block all\n", |_| None)
            .unwrap();
        assert!(pf.is_evaluated("com.apple/tuist.vmnat") && !pf.is_evaluated("tuist.runners"));
        assert_eq!(pf.anchors["com.apple/tuist.vmnat"].filter, ["block all"]);
    }
}
