//! A Mac without a keyboard must not fall asleep, lock itself or log its user out.
//!
//! The lock itself cannot be switched off without the password in an argument. It does not have to be: a screen locks when its saver
//! begins or the display sleeps, and neither ever does.

use crate::mac::resource::Resource;
use crate::mac::step::Step;

const CHECK: &str = r#"
settings=$(pmset -g custom) || exit 1
for name in sleep displaysleep disksleep; do
  printf '%s\n' "$settings" | awk -v name="$name" '$1 == name && $2 != 0 { found = 1 } END { exit found }' || exit 1
done
[ "$(defaults read /Library/Preferences/com.apple.screensaver idleTime 2>/dev/null)" = 0 ] &&
  [ "$(defaults read /Library/Preferences/com.apple.screensaver askForPassword 2>/dev/null)" = 0 ] &&
  [ "$(defaults read /Library/Preferences/.GlobalPreferences com.apple.autologout.AutoLogOutDelay 2>/dev/null)" = 0 ]
"#;

const CHANGE: &str = r"
pmset -a sleep 0 displaysleep 0 disksleep 0 &&
  defaults write /Library/Preferences/com.apple.screensaver idleTime -int 0 &&
  defaults write /Library/Preferences/com.apple.screensaver askForPassword -int 0 &&
  defaults write /Library/Preferences/.GlobalPreferences com.apple.autologout.AutoLogOutDelay -int 0
";

/// The step.
pub(in crate::mac) fn step() -> Step {
    Step::new("sleep", vec![Resource::script(CHECK, CHANGE)])
}
