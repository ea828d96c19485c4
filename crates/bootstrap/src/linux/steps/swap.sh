swapoff -a
if [ -e /etc/fstab ]; then
  awk '/^[[:space:]]*#/ || $3 != "swap" { print; next } { print "#" $0 }' /etc/fstab | put 0644 /etc/fstab
fi
