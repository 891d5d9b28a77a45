// Command peer is Caddy with the standard modules and caddy-ratelimit, of the
// version that go.mod names.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// What is built in.
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/mholt/caddy-ratelimit"
)

func main() {
	caddycmd.Main()
}
