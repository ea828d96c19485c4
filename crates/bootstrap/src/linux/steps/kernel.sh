printf '%s\n' overlay br_netfilter | put 0644 /etc/modules-load.d/k8s.conf
modprobe overlay
modprobe br_netfilter
# A node that was in another cluster may still route by that one's network plugin.
rm -f /etc/sysctl.d/*cilium*
put 0644 /etc/sysctl.d/99-k8s.conf <<'FILE'
net.bridge.bridge-nf-call-iptables = 1
net.bridge.bridge-nf-call-ip6tables = 1
net.ipv4.ip_forward = 1
FILE
sysctl --quiet --load /etc/sysctl.d/99-k8s.conf
