//go:build tools

// Package tools pins the Cluster API core manager that Russet runs. It needs a module of its own because cluster-api replaces its
// API module by a local folder.
package tools

import _ "sigs.k8s.io/cluster-api/core"
