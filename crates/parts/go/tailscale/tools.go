//go:build tools

// Package tools pins the Tailscale client and daemon that Russet's tailnet tests run. Newer versions need modules that are not
// published.
package tools

import (
	_ "tailscale.com/cmd/tailscale"
	_ "tailscale.com/cmd/tailscaled"
)
