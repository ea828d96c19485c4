#!/bin/bash
# tuist-pn0-up.sh once|keep: puts this server on its Private Network and keeps it there.
# DHCP is asked once. Its renewals sometimes go unanswered, so the address is then kept and set again every minute.
set -euo pipefail
shopt -s inherit_errexit
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=/dev/null
. /etc/tuist/pn0.conf
kept=/var/lib/tuist/pn0-cidr

# The card, made if it is a VLAN; its name is printed.
card() {
  local parent name
  if [ -z "$PN_VLAN" ]; then
    name=$(ip -br link show | awk -v mac="$PN_MAC" 'tolower($3) == mac && $1 !~ /@/ { print $1; exit }')
    [ -n "$name" ] || { echo "no network card has the address $PN_MAC" >&2; return 1; }
    printf '%s\n' "$name"
    return
  fi
  if ip link show dev pn0 >/dev/null 2>&1; then
    case "$(ip -d -o link show dev pn0) " in
      *" id $PN_VLAN "*) printf 'pn0\n'; return ;;
    esac
    ip link delete dev pn0 || return 1
  fi
  parent=$(ip -4 -o route show default | awk '{ for (i = 1; i < NF; i++) if ($i == "dev") { print $(i + 1); exit } }')
  [ -n "$parent" ] || { echo "there is no default route, so no card for the VLAN" >&2; return 1; }
  ip link add link "$parent" name pn0 type vlan id "$PN_VLAN" || return 1
  printf 'pn0\n'
}

keep_address() {
  printf '%s\n' "$1" >"$kept.new"
  mv -f "$kept.new" "$kept"
}

# The address: told, kept, already there, or asked for; in this order.
find_address() {
  local name=$1 present try
  if [ -n "$PN_ADDRESS" ]; then
    keep_address "$PN_ADDRESS"
    return
  fi
  [ -s "$kept" ] && return
  for ((try = 1; try <= 30; try++)); do
    present=$(ip -4 -o address show dev "$name" scope global | awk '{ print $4; exit }')
    if [ -n "$present" ]; then
      keep_address "$present"
      return
    fi
    timeout 60 dhclient -4 -1 -pf /run/tuist-pn0-dhclient.pid -lf /run/tuist-pn0-dhclient.leases \
      -sf /usr/local/sbin/tuist-pn0-lease.sh "$name" || true
    if [ -s /run/tuist-pn0-dhclient.pid ]; then
      kill "$(cat /run/tuist-pn0-dhclient.pid)" 2>/dev/null || true
      rm -f /run/tuist-pn0-dhclient.pid
    fi
    [ -s "$kept" ] && return
    sleep 5
  done
  echo "the Private Network gave no address" >&2
  return 1
}

assert_address() {
  local name
  name=$(card) || return 1
  ip link set dev "$name" up || return 1
  find_address "$name" || return 1
  ip address replace "$(cat "$kept")" dev "$name"
}

case "${1:-}" in
  once) assert_address ;;
  keep)
    while true; do
      sleep 60
      assert_address || true
    done
    ;;
  *)
    echo "usage: $0 once|keep" >&2
    exit 64
    ;;
esac
