//go:build tools

// Package tools pins the NetworkPolicy enforcer that Russet's real nodes use.
package tools

import _ "github.com/cloudnativelabs/kube-router/cmd/kube-router"
