//! `id`, and what else asks about users.

use crate::macos::call::{Call, Reply};
use crate::macos::image::{GROUPS, STAFF, UID};
use crate::macos::mac::Inner;

const GROUP_NAMES: &[(u32, &str)] = &[
    (0, "wheel"),
    (12, "everyone"),
    (20, "staff"),
    (61, "localaccounts"),
    (80, "admin"),
    (399, "com.apple.access_ssh"),
];

fn group_name(gid: u32) -> &'static str {
    GROUP_NAMES
        .iter()
        .find(|(id, _)| *id == gid)
        .map_or("nogroup", |(_, name)| name)
}

pub(super) fn id(mac: &Inner, call: &Call) -> Reply {
    let words = call.words();
    let (flags, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let uid = match names.as_slice() {
        [] => call.uid,
        ["root"] => 0,
        [name] if *name == mac.host.username || *name == "501" => UID,
        [name, ..] => return Reply::err(1, format!("id: {name}: no such user\n")),
    };
    let (gid, groups) = if uid == UID { (STAFF, GROUPS) } else { (0, &[0_u32][..]) };
    let user = mac.name_of(uid);
    let mut letters: Vec<char> = flags.iter().flat_map(|flag| flag.chars().skip(1)).collect();
    letters.sort_unstable();
    let list = |show: &dyn Fn(u32) -> String| groups.iter().map(|gid| show(*gid)).collect::<Vec<_>>().join(" ");
    let text = match letters.iter().collect::<String>().as_str() {
        "" => format!(
            "uid={uid}({user}) gid={gid}({}) groups={}",
            group_name(gid),
            groups
                .iter()
                .map(|gid| format!("{gid}({})", group_name(*gid)))
                .collect::<Vec<_>>()
                .join(",")
        ),
        "u" => uid.to_string(),
        "nu" => user.to_owned(),
        "g" => gid.to_string(),
        "gn" => group_name(gid).to_owned(),
        "G" => list(&|gid| gid.to_string()),
        "Gn" => list(&|gid| group_name(gid).to_owned()),
        other => {
            return Reply::unknown(1, format!("id: illegal option -- {other}\nusage: id [user]\n"));
        }
    };
    Reply::out(format!("{text}\n"))
}
