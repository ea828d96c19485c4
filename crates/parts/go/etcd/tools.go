//go:build tools

// Package tools pins the etcd server that Russet runs.
package tools

import _ "go.etcd.io/etcd/server/v3"
