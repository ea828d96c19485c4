is_right() {
  case "$(kubelet --version 2>/dev/null)" in
    "Kubernetes $KUBERNETES_CHANNEL."*) return 0 ;;
    *) return 1 ;;
  esac
}
if ! is_right; then
  url=https://pkgs.k8s.io/core:/stable:/$KUBERNETES_CHANNEL/deb
  key=/etc/apt/keyrings/kubernetes.asc
  curl --proto =https --tlsv1.2 --fail --silent --show-error --location --retry 5 --max-time 120 "$url/Release.key" |
    put 0644 "$key"
  printf 'deb [signed-by=%s] %s/ /\n' "$key" "$url" | put 0644 /etc/apt/sources.list.d/kubernetes.list
  touch "$STATE/restart-kubelet"
  install_packages "kubelet=${KUBERNETES_CHANNEL#v}.*"
  is_right || fail "the package manager installed another kubelet than $KUBERNETES_CHANNEL"
fi
apt-mark hold kubelet
