// Command ours is Caddy with the standard modules and this rate limiter, of this
// folder.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// What is built in.
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddygate/ratelimit"
)

func main() {
	caddycmd.Main()
}
