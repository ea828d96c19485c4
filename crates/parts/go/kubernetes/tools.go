//go:build tools

// Package tools pins the Kubernetes programs that Russet runs. The module exists because k8s.io/kubernetes replaces its staging
// modules by local folders, which only the main module may do; here the same modules are replaced by their published versions.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
