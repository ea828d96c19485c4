folder 0750 /var/lib/kubelet
folder 0755 /opt/local-path-provisioner
printf '%s' "$BOOTSTRAP_KUBECONFIG" | put 0600 /var/lib/kubelet/bootstrap-kubeconfig
printf '%s' "$CLUSTER_CA" | put 0644 /var/lib/kubelet/ca.crt kubelet
printf '%s' "$KUBELET_CONFIG" | put 0600 /var/lib/kubelet/config.yaml kubelet
printf '%s' "$KUBELET_UNIT" | put 0644 /etc/systemd/system/kubelet.service kubelet

args=()
if [ "$NODE_ADDRESS" = private-network ]; then
  address=$(cat /var/lib/tuist/pn0-cidr)
  args+=("--node-ip=${address%/*}")
fi
# With systemd-resolved /etc/resolv.conf names a resolver that Pods cannot reach.
if [ -e /run/systemd/resolve/resolv.conf ]; then
  args+=(--resolv-conf=/run/systemd/resolve/resolv.conf)
fi
printf 'TUIST_KUBELET_ARGS=%s\n' "${args[*]-}" | put 0644 /var/lib/tuist/kubelet.env kubelet
