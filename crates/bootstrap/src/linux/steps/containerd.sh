root=${DATA:-/var/lib}/containerd
put 0644 /etc/containerd/config.toml containerd <<FILE
version = 2
root = "$root"
# For the operator: a file there that names a plugin replaces the section below.
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.grpc.v1.cri"]
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
FILE
put 0644 /etc/containerd/certs.d/docker.io/hosts.toml <<'FILE'
server = "https://registry-1.docker.io"

[host."https://mirror.gcr.io"]
  capabilities = ["pull", "resolve"]
FILE
if [ -n "$DATA" ]; then
  printf '[Unit]\nRequiresMountsFor=%s\n' "$DATA" | put 0644 /etc/systemd/system/containerd.service.d/10-tuist.conf containerd
fi
up containerd
