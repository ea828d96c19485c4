# What every program of ours on a Mac begins with. For bash 3.2, the one macOS has; run as root, read from standard input.
# Functions that end in _ok look and change nothing; the others change and may be run again after a cut at any point.
set -u
umask 077
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
STATE=/usr/local/lib/russet
# Where this connection comes from: sudo forgets it, so it is an argument.
SOURCE=${1:-}
SOURCE=${SOURCE%% *}

say() { printf '%s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

sha() { [ -f "$1" ] && shasum -a 256 "$1" 2>/dev/null | cut -c1-64; }

# Permissions as ls writes them, without the mark for extended attributes, and owner and group.
mode_ok() { # path -rwxr-xr-x owner:group
  # shellcheck disable=SC2012 # the names are ours
  [ "$(ls -ld "$1" 2>/dev/null | awk '{ print substr($1, 1, 10) " " $3 ":" $4 }')" = "$2 $3" ]
}

octal() { # -rwxr-xr-x: 0755
  local text=$1 number=0 place
  for place in 1 2 3 4 5 6 7 8 9; do
    number=$((number * 2))
    [ "${text:$place:1}" = - ] || number=$((number + 1))
  done
  printf '%o' "$number"
}

own() { # path -rwxr-xr-x owner:group
  chmod "$(octal "$2")" "$1" && chown "$3" "$1"
}

# Folders on the way are for everybody: the agent is not root. What is secret is so by its own mode.
folder() { (umask 022 && mkdir -p "$@"); }

dir_ok() { [ -d "$1" ] && [ ! -L "$1" ] && mode_ok "$1" "$2" "$3"; }
dir_put() { folder "$1" && own "$1" "$2" "$3"; }

file_ok() { # path mode owner sha
  [ ! -L "$1" ] && [ "$(sha "$1")" = "$4" ] && mode_ok "$1" "$2" "$3"
}

# Content in base64 on standard input. Whoever reads the path sees the old file or the new one, never a part or a wrong mode. The
# part is hidden: sshd reads every other file in its folder, and a half one would keep it from starting.
part_of() { printf '%s/.%s.russet-part' "$(dirname "$1")" "${1##*/}"; }
file_put() { # path mode owner sha
  local part
  part=$(part_of "$1")
  folder "$(dirname "$1")" || return 1
  rm -f "$part"
  if ! base64 --decode >"$part"; then
    rm -f "$part"
    return 1
  fi
  [ "$(sha "$part")" = "$4" ] && own "$part" "$2" "$3" && mv -f "$part" "$1" && return 0
  rm -f "$part"
  say "$1 could not be written whole" >&2
  return 1
}

gone_ok() { [ ! -e "$1" ] && [ ! -L "$1" ]; }

# A file others write to: only whose it is matters.
log_ok() { [ -f "$1" ] && [ ! -L "$1" ] && mode_ok "$1" "$2" "$3"; } # path mode owner
log_put() { # path mode owner
  [ -f "$1" ] && [ ! -L "$1" ] || { rm -rf "$1" && : >"$1"; } || return 1
  own "$1" "$2" "$3"
}

# Uploads: by content, kept until they are installed.
blob_bytes() { # sha size: bytes of it that are here
  local path=$STATE/incoming/$1 size
  size=$(wc -c <"$path" 2>/dev/null | tr -d ' ') || size=
  printf '%s' "${size:-0}"
}

blob_whole() { # sha: verified, or thrown away
  [ "$(sha "$STATE/incoming/$1")" = "$1" ] && return 0
  rm -f "$STATE/incoming/$1"
  say "what was uploaded is not what was sent; it was thrown away" >&2
  return 1
}

# A program: which upload it came from, and what it became by being signed here.
program_ok() { # path sha
  local stamp=$STATE/installed/${1##*/} now
  now=$(sha "$1")
  [ -n "$now" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$2 $now" ] && mode_ok "$1" -rwxr-xr-x root:wheel
}

# A new inode, signed before it gets its name: the kernel remembers what it knew of the old one.
program_put() { # path sha
  local name stage
  name=$(basename "$1")
  stage=$STATE/staging/$2
  blob_whole "$2" || return 1
  rm -rf "$stage" && folder "$stage" "$STATE/installed" "$(dirname "$1")" || return 1
  cp "$STATE/incoming/$2" "$stage/$name" && own "$stage/$name" -rwxr-xr-x root:wheel || return 1
  codesign --force --sign - "$stage/$name" && codesign -v "$stage/$name" || return 1
  printf '%s %s\n' "$2" "$(sha "$stage/$name")" >"$STATE/installed/$name.part" &&
    mv -f "$stage/$name" "$1" && mv -f "$STATE/installed/$name.part" "$STATE/installed/$name" &&
    rm -rf "$stage" "$STATE/incoming/$2"
}

# launchd. A job is named domain/label.
job_field() { # job field
  launchctl print "$1" 2>/dev/null | sed -n "s/^[[:space:]]*$2 = //p" | head -n 1
}
job_pid() { job_field "$1" pid; }
job_known() { launchctl print "$1" >/dev/null 2>&1; }

# What a job was last started with: it runs, and with the files it should.
daemon_ok() { # job inputs
  [ "$(cat "$STATE/loaded/${1##*/}" 2>/dev/null)" = "$2" ] && [ -n "$(job_pid "$1")" ]
}
# The same for a job that runs now and then.
timer_ok() { # job inputs
  [ "$(cat "$STATE/loaded/${1##*/}" 2>/dev/null)" = "$2" ] && job_known "$1"
}

# Waits for a process other than the old one that is still the same a while later: one that crashes shows a new pid each time.
job_settles() { # job old-pid
  local tries=0 pid again
  while [ "$tries" -lt "20" ]; do
    pid=$(job_pid "$1")
    if [ -n "$pid" ] && [ "$pid" != "$2" ]; then
      sleep "$SETTLE"
      again=$(job_pid "$1")
      [ "$again" = "$pid" ] && return 0
    fi
    tries=$((tries + 1))
    sleep "$PAUSE"
  done
  return 1
}

# launchd holds the job to the code it was loaded with, has put it aside, or starts it less and less often: only loading it again
# helps.
job_is_stuck() { # job
  launchctl print "$1" 2>/dev/null |
    grep -E 'OS_REASON_CODESIGNING|needs LWCR update|penalty box|EX_CONFIG|state = spawn scheduled' >/dev/null
}

# Unloading goes on after the command has returned, and loading fails for as long.
job_unload() { # job
  local tries=0
  job_known "$1" || return 0
  launchctl bootout "$1" 2>/dev/null
  while job_known "$1"; do
    tries=$((tries + 1))
    [ "$tries" -lt "60" ] || { say "launchd does not let go of ${1##*/}; restart the host" >&2; return 1; }
    sleep "$PAUSE"
  done
}

job_load_again() { # job plist
  local tries=0 code domain=${1%/*}
  job_unload "$1" || return 1
  while :; do
    launchctl bootstrap "$domain" "$2"
    code=$?
    case $code in
    0 | 37) return 0 ;;
    5 | 36) [ "$tries" != 10 ] || launchctl enable "$1" ;;
    # Somebody switched it off, which outlives the plist.
    119) launchctl enable "$1" ;;
    *) say "launchctl bootstrap of ${1##*/} ended with $code" >&2; return 1 ;;
    esac
    tries=$((tries + 1))
    [ "$tries" -lt "30" ] || { say "launchctl bootstrap of ${1##*/} keeps ending with $code" >&2; return 1; }
    sleep "$PAUSE"
  done
}

# Whether launchd has this very plist. What is on disk may be newer: the last run may have been cut.
plist_loaded() { # job plist
  job_known "$1" && [ "$(cat "$STATE/loaded/${1##*/}.plist" 2>/dev/null)" = "$(sha "$2")" ]
}
plist_load() { # job plist
  rm -f "$STATE/loaded/${1##*/}.plist"
  job_load_again "$1" "$2" && sha "$2" >"$STATE/loaded/${1##*/}.plist"
}

# A command that is ended after so many pauses: macOS has no timeout(1).
at_most() { # pauses command
  local left=$1 pid
  shift
  "$@" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    [ "$left" -gt 0 ] || { kill "$pid"; wait "$pid" 2>/dev/null; return 124; }
    left=$((left - 1))
    sleep "$PAUSE"
  done
  wait "$pid"
}

# launchctl waits for the start of a job, and a job that launchd put aside never starts.
kick() { # job
  at_most 30 launchctl kickstart -k "$1" || say "launchctl kickstart of ${1##*/} ended with $?" >&2
}

# Starts a job with what is on disk now. A plist that launchd has is not loaded again: macOS stops restarting jobs that are
# loaded too often. For the same reason a job that is stuck is loaded again once for the same inputs, and not at every try.
daemon_reload() { # job plist inputs
  local old settled=no label=${1##*/}
  folder "$STATE/loaded" && rm -f "$STATE/loaded/$label" || return 1
  old=$(job_pid "$1")
  if plist_loaded "$1" "$2"; then
    kick "$1"
    job_settles "$1" "$old" && settled=yes
    if [ $settled = no ] && job_is_stuck "$1" && [ "$(cat "$STATE/loaded/$label.stuck" 2>/dev/null)" != "$3" ]; then
      printf '%s\n' "$3" >"$STATE/loaded/$label.stuck" && plist_load "$1" "$2" || return 1
      job_settles "$1" "$old" && settled=yes
    fi
  else
    plist_load "$1" "$2" || return 1
    job_settles "$1" "$old" && settled=yes
  fi
  if [ $settled = no ]; then
    old=$(job_pid "$1")
    kick "$1"
    job_settles "$1" "$old" || {
      [ -z "$old" ] || [ "$(job_pid "$1")" != "$old" ] ||
        { say "launchd was told to start $label again, and it is still the process from before; restart the host" >&2; return 1; }
      say "$label does not stay up: $(job_field "$1" state), last exit $(job_field "$1" 'last exit code')$(job_field "$1" 'last exit reason')" >&2
      return 1
    }
  fi
  rm -f "$STATE/loaded/$label.stuck"
  printf '%s\n' "$3" >"$STATE/loaded/$label"
}

# Loading starts it too.
timer_reload() { # job plist inputs
  folder "$STATE/loaded" && rm -f "$STATE/loaded/${1##*/}" || return 1
  if plist_loaded "$1" "$2"; then kick "$1"; else plist_load "$1" "$2" || return 1; fi
  printf '%s\n' "$3" >"$STATE/loaded/${1##*/}"
}

# A job that should not be: unloaded, and its plist gone.
job_gone_ok() { gone_ok "$2" && ! job_known "$1"; } # job plist
job_remove() { # job plist
  job_unload "$1" && rm -f "$2" "$STATE/loaded/${1##*/}" "$STATE/loaded/${1##*/}.plist" "$STATE/loaded/${1##*/}.stuck"
}

# One program at a time changes a host. One whose connection was cut may still be at work; it is waited for, not for ever.
lock() {
  local tries=0 file=$STATE/lock
  folder "$STATE"
  until (set -C && say $$ >"$file") 2>/dev/null; do
    [ -e "$file" ] && kill -0 "$(cat "$file")" 2>/dev/null && [ "$tries" -lt 60 ] || break
    tries=$((tries + 1))
    sleep "$PAUSE"
  done
  say $$ >"$file" 2>/dev/null
  trap 'rm -f "$STATE/lock"' EXIT
}

# One step: what it says goes to the caller; the line that tells its state begins with a mark no output has.
survey() { # step
  local said
  if said=$("check_$1" 2>&1); then
    say "@@ $1 ok"
  elif [ $? = 75 ]; then
    say "@@ $1 held $said"
  else
    say "@@ $1 drift"
  fi
}
# Exit status of a check that found a difference which must wait, with the reason in its output.
HELD=75
