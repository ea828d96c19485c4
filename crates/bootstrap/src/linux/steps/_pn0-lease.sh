#!/bin/bash
# Called by dhclient instead of its own script. Keeps the address and nothing else: the network's DHCP server also names a
# resolver and routes that lead nowhere from here.
set -euo pipefail
: "${interface:?}"
case "${reason:-}" in
  PREINIT) ip link set dev "$interface" up ;;
  BOUND | RENEW | REBIND | REBOOT)
    : "${new_ip_address:?}" "${new_subnet_mask:?}"
    bits=0
    IFS=. read -r -a parts <<<"$new_subnet_mask"
    for part in "${parts[@]}"; do
      while [ "$part" -gt 0 ]; do
        bits=$((bits + (part & 1)))
        part=$((part >> 1))
      done
    done
    printf '%s/%s\n' "$new_ip_address" "$bits" >/var/lib/tuist/pn0-cidr.new
    mv -f /var/lib/tuist/pn0-cidr.new /var/lib/tuist/pn0-cidr
    ;;
esac
