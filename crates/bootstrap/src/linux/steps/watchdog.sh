# A server that hangs is worse than one that restarts. Not every kernel knows every key.
put 0644 /etc/sysctl.d/98-tuist-panic.conf <<'FILE'
-kernel.softlockup_panic = 1
-kernel.hardlockup_panic = 1
-kernel.panic_on_oops = 1
-kernel.panic = 10
FILE
sysctl --quiet --load /etc/sysctl.d/98-tuist-panic.conf || echo "some kernel settings do not exist here" >&2
put 0644 /etc/systemd/system.conf.d/10-tuist-watchdog.conf <<'FILE'
[Manager]
RuntimeWatchdogSec=30s
FILE
