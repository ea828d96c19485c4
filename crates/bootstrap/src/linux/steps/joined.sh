# Not before the kubelet has its own certificate is this a node.
for ((second = 0; second < 300; second++)); do
  if [ -s /var/lib/kubelet/pki/kubelet-client-current.pem ] && systemctl is-active --quiet kubelet; then
    exit 0
  fi
  sleep 1
done
journalctl --unit kubelet --lines 15 --no-pager --output cat || true
fail "the kubelet has no certificate after 300 s; is its signing request approved, and does its bootstrap token still live?"
