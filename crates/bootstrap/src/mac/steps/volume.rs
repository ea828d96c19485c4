//! A volume of their own for the caches of runners, so that they cannot fill the host's disk.

use russet_telemetry::Secret;

use crate::mac::config::{Fleet, Host};
use crate::mac::resource::Resource;
use crate::mac::step::Step;

/// Where it is.
pub(super) const PATH: &str = "/Volumes/tuist-runner-cache";

const CHECK: &str = r#"
volume=/Volumes/tuist-runner-cache
diskutil info tuist-runner-cache 2>/dev/null |
  awk '$1 == "Mounted:" { mounted = $2 } $1 == "Owners:" { owners = $2 } END { exit mounted != "Yes" || owners != "Enabled" }' &&
  mode_ok "$volume" drwxr-xr-x "$LOGIN:staff"
"#;
/// Its size is set once: changing it under a cache would lose the cache.
const CHANGE: &str = r#"
volume=/Volumes/tuist-runner-cache
if ! diskutil info tuist-runner-cache >/dev/null 2>&1; then
  container=$(diskutil info /System/Volumes/Data | awk -F': *' '/APFS Container:/ { print $2 }')
  [ -n "$container" ] || { say 'the host has no APFS container for its data' >&2; exit 1; }
  diskutil apfs addVolume "$container" APFS tuist-runner-cache -quota "${GIB}GiB" || exit 1
fi
diskutil info tuist-runner-cache | grep 'Mounted: *Yes' >/dev/null || diskutil mount tuist-runner-cache || exit 1
diskutil enableOwnership "$volume" || exit 1
own "$volume" drwxr-xr-x "$LOGIN:staff"
"#;

/// The step.
pub(in crate::mac) fn step(fleet: &Fleet, host: &Host) -> Step {
    let resources = fleet.cache_volume_gib.map(|gib| Resource::Script {
        upload: None,
        variables: vec![
            ("LOGIN", Secret::new(host.user.clone())),
            ("GIB", Secret::new(gib.to_string())),
        ],
        check: CHECK,
        change: CHANGE,
    });
    Step::new("cache-volume", resources.into_iter().collect())
}
