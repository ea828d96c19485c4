//go:build tools

// Package tools pins the volume provisioner that Russet's real nodes use.
package tools

import _ "github.com/rancher/local-path-provisioner"
