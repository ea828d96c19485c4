//go:build tools

// Package tools pins the Helm client that Russet runs.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
