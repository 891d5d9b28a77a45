// Command bare is Caddy with the standard modules and the benchmark's handlers:
// what the other builds are compared with.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// What is built in.
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddygate/ratelimit/bench/nothing"
)

func main() {
	nothing.Register()
	caddycmd.Main()
}
