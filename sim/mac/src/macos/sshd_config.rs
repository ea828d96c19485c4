//! What sshd makes of its configuration. It is started for each connection, so a change holds from the next one on. [facts 5]

use super::tree::Tree;

/// The settings the emulator honours; others are accepted in silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) password: bool,
    pub(super) keyboard_interactive: bool,
    pub(super) public_key: bool,
    pub(super) allow_users: Option<Vec<String>>,
    pub(super) key_files: Vec<String>,
}

/// Reads sshd_config and what it includes; the first value of a keyword wins.
pub(super) fn read(tree: &Tree) -> Settings {
    let mut found: Vec<(String, String)> = Vec::new();
    collect(tree, "/etc/ssh/sshd_config", &mut found, 0);
    let first = |name: &str| {
        found
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let on = |name: &str| first(name).is_none_or(|value| !value.eq_ignore_ascii_case("no"));
    let list = |value: &str| value.split_whitespace().map(str::to_owned).collect();
    Settings {
        password: on("passwordauthentication"),
        keyboard_interactive: on("kbdinteractiveauthentication") && on("challengeresponseauthentication"),
        public_key: on("pubkeyauthentication"),
        allow_users: first("allowusers").map(list),
        key_files: first("authorizedkeysfile").map_or_else(|| vec![".ssh/authorized_keys".to_owned()], list),
    }
}

fn collect(tree: &Tree, path: &str, found: &mut Vec<(String, String)>, depth: u32) {
    if depth > 16 {
        return;
    }
    let text = tree.read_text(path).unwrap_or_default();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once([' ', '\t', '=']).unwrap_or((line, ""));
        let (key, value) = (key.to_ascii_lowercase(), value.trim().to_owned());
        if key == "match" {
            // The rest is for some connections only, which nobody here needs.
            break;
        }
        if key != "include" {
            found.push((key, value));
            continue;
        }
        match value.strip_suffix("/*").or_else(|| value.strip_suffix("/*.conf")) {
            Some(folder) => {
                // As glob(3) has it, hidden files are not meant.
                for name in tree.list(folder).iter().filter(|name| !name.starts_with('.')) {
                    if value.strip_suffix(".conf").is_none() || name.strip_suffix(".conf").is_some() {
                        collect(tree, &format!("{folder}/{name}"), found, depth + 1);
                    }
                }
            }
            None => collect(tree, &value, found, depth + 1),
        }
    }
}
