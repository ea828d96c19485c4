//go:build tools

// Package tools pins the manifest validator that Russet's chart tests run.
package tools

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
