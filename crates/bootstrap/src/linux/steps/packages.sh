packages=()
command -v containerd >/dev/null || packages+=(containerd)
command -v curl >/dev/null || packages+=(curl)
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
if [ -n "$DATA" ]; then
  command -v xfs_quota >/dev/null || packages+=(xfsprogs)
fi
if [ -n "$PN_MAC$PN_VLAN" ]; then
  command -v ip >/dev/null || packages+=(iproute2)
  [ -n "$PN_ADDRESS" ] || command -v dhclient >/dev/null || packages+=(isc-dhcp-client)
fi
if [ "${#packages[@]}" -gt 0 ]; then
  install_packages "${packages[@]}"
fi
