conf=$(printf 'PN_VLAN=%s\nPN_MAC=%s\nPN_ADDRESS=%s\n' "$PN_VLAN" "$PN_MAC" "$PN_ADDRESS")
if [ "$(cat /etc/tuist/pn0.conf 2>/dev/null)" != "$conf" ]; then
  # The address of another network is worse than none.
  rm -f /var/lib/tuist/pn0-cidr
fi
printf '%s\n' "$conf" | put 0644 /etc/tuist/pn0.conf tuist-pn0
printf '%s' "$PN0_UP" | put 0755 /usr/local/sbin/tuist-pn0-up.sh tuist-pn0
printf '%s' "$PN0_LEASE" | put 0755 /usr/local/sbin/tuist-pn0-lease.sh tuist-pn0
put 0644 /etc/systemd/system/tuist-pn0.service tuist-pn0 <<'FILE'
[Unit]
Description=Private Network of the caches
After=network-online.target
Wants=network-online.target
Before=kubelet.service

[Service]
ExecStartPre=/usr/local/sbin/tuist-pn0-up.sh once
ExecStart=/usr/local/sbin/tuist-pn0-up.sh keep
TimeoutStartSec=40min
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
FILE
up tuist-pn0
if [ ! -s /var/lib/tuist/pn0-cidr ]; then
  fail "the server has no address on its Private Network; see the journal of tuist-pn0"
fi
