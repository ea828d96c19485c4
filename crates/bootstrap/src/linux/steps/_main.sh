main() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "this program has to run as root; use: sudo bash" >&2
    exit 77
  fi
  # Whoever started us may go away; the work goes on, and the report says how it ended.
  trap '' HUP
  trap : PIPE
  folder 0755 "$STATE"
  exec 9>"$STATE/lock"
  if ! flock -n 9; then
    echo "another run of the join program is under way" >&2
    exit 75
  fi
  rm -f "$STATE"/status.?????? "$STATE/output"
  if [ -e "$STATE/log" ]; then
    mv -f "$STATE/log" "$STATE/log.1"
  fi
  exec 3>&1
  run_steps
  report "done" joined
  say "joined"
}

main "$@"
exit
