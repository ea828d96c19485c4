#!/bin/bash
# Stands in for the commands that would change the machine. Every call is written down, with its environment; what a
# command would have changed is kept in files under /var/shim, so that the next call sees it.
set -euo pipefail
state=/var/shim
name=${0##*/}
mkdir -p $state

if [ "$name" = chmod ]; then
  for file in "${@:2}"; do
    [ -f "$file" ] && printf '%s %s\n' "$(/usr/bin/stat -c %a "$file")" "$file" >>$state/modes
  done
  exec /usr/bin/chmod "$@"
fi

# Nothing here may hold the lock of the program, or a killed one would leave it locked.
call=$(($(cat $state/count 2>/dev/null || echo 0) + 1))
echo $call >$state/count
echo "$name $*" >>$state/calls
env >>$state/environments
if [ -e $state/fail-at ] && [ "$(cat $state/fail-at)" = $call ]; then
  if [ -e $state/kill ]; then
    # As a power failure would: the whole program, at once.
    kill -KILL -- "-$(cat $state/group)"
    exec /usr/bin/sleep 60
  fi
  echo "$name breaks down, and prints $(cat /secret)" >&2
  exit 100
fi

option() { # option NAME ARGS...: the word after NAME
  local wanted=$1
  shift
  while [ $# -gt 1 ]; do
    [ "$1" = "$wanted" ] && { echo "$2"; return; }
    shift
  done
}

case "$name $*" in
  "apt-get"*" install "*)
    while [ -e $state/apt-waits ]; do /usr/bin/sleep 0.05; touch $state/apt-is-waiting; done
    for word in "$@"; do
      case $word in
        kubelet=1.35.\*) touch $state/kubelet ;;
        containerd | xfsprogs | isc-dhcp-client | curl | iproute2) touch "$state/installed-$word" ;;
      esac
    done
    ;;
  "kubelet --version")
    [ -e $state/kubelet ] || exit 127
    echo "Kubernetes v1.35.4"
    ;;
  "curl "*) echo "-----BEGIN PGP PUBLIC KEY BLOCK-----" ;;
  "systemctl is-active --quiet "*) [ -e "$state/active-$3" ] ;;
  "systemctl restart "*)
    [ ! -e /proc/self/fd/9 ] || { echo "a service inherits the lock" >&2; exit 1; }
    case $2 in
      tuist-pn0) /usr/local/sbin/tuist-pn0-up.sh once ;;
      kubelet)
        [ -e $state/kubelet ] || { echo "there is no kubelet" >&2; exit 1; }
        mkdir -p /var/lib/kubelet/pki
        [ -e $state/no-certificate ] || echo certificate >/var/lib/kubelet/pki/kubelet-client-current.pem
        ;;
    esac
    touch "$state/active-$2"
    ;;
  "findmnt "*)
    line=$(grep -s " $(option --mountpoint "$@") " $state/mounts) || exit 1
    read -r source _ type options <<<"$line"
    case $(option --output "$@") in
      FSTYPE) echo "$type" ;;
      OPTIONS) echo "$options" ;;
      UUID) echo 1234-abcd ;;
      *) echo "$source" ;;
    esac
    ;;
  "mount "*)
    read -r source target type options _ < <(awk -v target="$1" '$2 == target' /etc/fstab) || { echo "mount: $1: not in fstab" >&2; exit 32; }
    echo "$source $target $type rw,$options" >>$state/mounts
    ;;
  "umount "*) sed -i "\\| $1 |d" $state/mounts ;;
  "lsattr "*) [ -e $state/project ] && echo "  100 -----------P-- $3" || echo "    0 ------------- $3" ;;
  "xfs_quota "*"project "*) touch $state/project ;;
  "ip -4 -o route show default") echo "default via 10.0.0.1 dev ens1 proto dhcp" ;;
  "ip link show dev pn0") [ -e $state/pn0 ] ;;
  "ip -d -o link show dev pn0") echo "3: pn0@ens1: <UP> mtu 1500\\    vlan protocol 802.1Q id $(cat $state/pn0) <REORDER_HDR> " ;;
  "ip link add link ens1 name pn0 type vlan id "*) echo "${10}" >$state/pn0 ;;
  "ip link delete dev pn0") rm $state/pn0 ;;
  "ip -br link show") printf 'lo UNKNOWN 00:00:00:00:00:00 <LOOPBACK>\nens1 UP 02:00:00:00:00:01 <UP>\nens2 DOWN 02:00:00:ab:cd:ef <UP>\n' ;;
  "ip -4 -o address show dev "*) [ ! -e $state/dhcp-by-image ] || echo "4: ens2    inet 172.16.0.77/22 brd 172.16.3.255 scope global ens2" ;;
  "dhclient "*)
    hook=$(option -sf "$@")
    reason=PREINIT interface=pn0 "$hook"
    reason=BOUND interface=pn0 new_ip_address=172.16.0.5 new_subnet_mask=255.255.252.0 "$hook"
    ;;
  "sleep "*) exec /usr/bin/sleep 0.01 ;;
  "journalctl "*) echo "kubelet: unauthorized, said $(cat /secret)" ;;
  *) ;; # modprobe, sysctl, swapoff, apt-mark, the rest of systemctl and ip: nothing to imitate
esac
