//! `tart`, in the bundle its entitlements are bound to. It is never exchanged under a virtual machine.

use crate::mac::config::Fleet;
use crate::mac::resource::{Mode, Resource};
use crate::mac::step::Step;

const WRAPPER: &str = "/usr/local/bin/tart";
const SCRIPT: &str = "#!/bin/bash\nexec /usr/local/lib/tart.app/Contents/MacOS/tart \"$@\"\n";

const CHECK: &str = r#"
[ "$(cat "$STATE/installed/tart.app" 2>/dev/null)" = "$UPLOAD" ] && [ -x /usr/local/lib/tart.app/Contents/MacOS/tart ] && exit 0
[ -x /usr/local/lib/tart.app/Contents/MacOS/tart ] || exit 1
pgrep -f 'tart.app/Contents/MacOS/tart run' >/dev/null || exit 1
say 'virtual machines run; tart is exchanged when none does'
exit "$HELD"
"#;
const CHANGE: &str = r#"
stage=$STATE/staging/$UPLOAD
blob_whole "$UPLOAD" || exit 1
rm -rf "$stage" && folder "$stage" "$STATE/installed" || exit 1
tar -xzf "$STATE/incoming/$UPLOAD" -C "$stage" || exit 1
[ -x "$stage/tart.app/Contents/MacOS/tart" ] || { say 'there is no tart.app in the archive' >&2; exit 1; }
"$stage/tart.app/Contents/MacOS/tart" --version || { say 'the tart of the archive does not start' >&2; exit 1; }
chown -R root:wheel "$stage/tart.app" && chmod -R go+rX "$stage/tart.app" || exit 1
rm -rf "$STATE/staging/tart.old" || exit 1
[ ! -e /usr/local/lib/tart.app ] || mv /usr/local/lib/tart.app "$STATE/staging/tart.old" || exit 1
mv "$stage/tart.app" /usr/local/lib/tart.app && rm -rf "$STATE/staging/tart.old" || exit 1
printf '%s\n' "$UPLOAD" >"$STATE/installed/tart.app" && rm -rf "$stage" "$STATE/incoming/$UPLOAD"
"#;

/// The step; nothing where hosts bring their own.
pub(in crate::mac) fn step(fleet: &Fleet) -> Step {
    let resources = fleet.tart.iter().flat_map(|archive| {
        [
            Resource::Script {
                upload: Some(archive.clone()),
                variables: Vec::new(),
                check: CHECK,
                change: CHANGE,
            },
            Resource::text(WRAPPER, Mode::PROGRAM, SCRIPT),
        ]
    });
    Step::new("tart", resources.collect())
}
