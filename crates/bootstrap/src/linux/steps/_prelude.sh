
shopt -s inherit_errexit
readonly STATE=/var/lib/tuist/join
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a
umask 077

# Strikes secrets out of standard input: ours by value, bootstrap tokens of anybody by their form.
scrub() {
  local text secret
  text=$(tr -d '\000')
  for secret in ${SECRETS[@]+"${SECRETS[@]}"}; do
    text=${text//"$secret"/[redacted]}
  done
  printf '%s\n' "$text" | sed -E 's/\b[a-z0-9]{6}\.[a-z0-9]{16}\b/[redacted]/g'
}

# report STATE STEP [OUTPUT]: what is known of this run, replaced as a whole.
report() {
  local new
  new=$(mktemp "$STATE/status.XXXXXX")
  {
    printf 'tuist-join 1\nstate %s\nstep %s\nconfig %s\nat %s\n' "$1" "$2" "$CONFIG_HASH" "$(date +%s)"
    if [ -n "${3:-}" ]; then
      printf '%s\n' "$3" | sed 's/^/| /'
    fi
  } >"$new"
  chmod 0644 "$new"
  mv -f "$new" "$STATE/status"
}

# say WORDS: to whoever started us, if he is still there.
say() {
  printf '%s\n' "$*" >&3 2>/dev/null || true
}

# fail WORDS: ends the step.
fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# run NAME FUNCTION: one step, in a shell of its own, so that no variable leaks into the next and each can run alone.
run() {
  local name=$1 function=$2 code tail
  report running "$name"
  say "==> $name"
  set +e
  (
    set -eE
    trap 'printf "%s\n" "line $LINENO of the join program failed with $?: $BASH_COMMAND" >&2' ERR
    "$function"
  ) >"$STATE/output" 2>&1 </dev/null
  code=$?
  set -e
  {
    printf '==> %s (%s)\n' "$name" "$code"
    scrub <"$STATE/output"
  } >>"$STATE/log"
  if [ "$code" -ne 0 ]; then
    tail=$(scrub <"$STATE/output" | tail -n 20 | tail -c 4096)
    report failed "$name" "$tail"
    say "the step $name failed:"
    say "$tail"
    rm -f "$STATE/output"
    exit 1
  fi
  rm -f "$STATE/output"
}

# folder MODE PATH: made if it is missing; what is above it is for everybody, whatever our umask says.
folder() {
  if [ ! -d "$2" ]; then
    (umask 022 && mkdir -p "$2")
    chmod "$1" "$2"
  fi
}

# put MODE PATH [UNIT]: standard input becomes the file, whole or not at all. If that changes it, UNIT has to restart,
# which is noted first, so that a run which is cut off in between is not forgotten.
put() {
  local mode=$1 path=$2 unit=${3:-} new
  folder 0755 "${path%/*}"
  new=$(mktemp "$path.XXXXXX")
  cat >"$new"
  chmod "$mode" "$new"
  if cmp -s "$new" "$path" && [ "$(stat -c %a "$path")" = "$(stat -c %a "$new")" ]; then
    rm -f "$new"
    return
  fi
  if [ -n "$unit" ]; then
    touch "$STATE/restart-$unit"
  fi
  mv -f "$new" "$path"
  echo "wrote $path"
}

# up UNIT: enabled, running, and not on old files.
up() {
  systemctl daemon-reload
  systemctl enable "$1"
  if [ -e "$STATE/restart-$1" ] || ! systemctl is-active --quiet "$1"; then
    systemctl restart "$1"
    rm -f "$STATE/restart-$1"
  fi
}

# Services must not inherit our lock.
systemctl() {
  command systemctl "$@" 9>&-
}

# install_packages PACKAGE...: with patience for the package manager's own jobs after a first boot.
install_packages() {
  timeout 900 apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 update
  timeout 1800 apt-get -qy -o DPkg::Lock::Timeout=600 -o Acquire::Retries=5 -o Dpkg::Options::=--force-confold \
    install --no-install-recommends --allow-change-held-packages --allow-downgrades "$@"
}

# fstab_line SOURCE TARGET TYPE OPTIONS: one line for TARGET, in place of the one there is.
fstab_line() {
  [ -e /etc/fstab ] || touch /etc/fstab
  awk -v target="$2" -v line="$1 $2 $3 $4 0 0" '
    /^[[:space:]]*#/ || $2 != target { print; next }
    !found { print line; found = 1 }
    END { if (!found) print line }
  ' /etc/fstab | put 0644 /etc/fstab
}
