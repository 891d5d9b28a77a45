package page

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Address is where the admin API of a gateway listens.
type Address struct {
	host string // what a request names as its host
	dial func(context.Context) (net.Conn, error)
}

// defaultAdmin is where Caddy's admin API listens unless the configuration says.
const defaultAdmin = "localhost:2019"

// allowedAddresses is what an error says.
const allowedAddresses = "allowed are <host>:<port>, unix/<path> and ssh://[<user>@]<host>[:<port>][/<address there>]"

// ParseAddress reads an address of an admin API as Caddy writes it, localhost:2019 or
// unix//run/caddy.sock, or ssh://[<user>@]<host>[:<port>][/<address there>] for one
// that only its own machine reaches; the address there is localhost:2019 by default.
func ParseAddress(text string) (*Address, error) {
	if rest, found := strings.CutPrefix(text, "ssh://"); found {
		return parseSSH(text, rest)
	}
	network, place, found := strings.Cut(text, "/")
	switch {
	case found && network == "unix":
		path, _, _ := strings.Cut(place, "|") // Caddy's rights of the socket
		if path == "" {
			return nil, fmt.Errorf("address %q names no socket: %s", text, allowedAddresses)
		}
		return dialed("127.0.0.1", network, path), nil
	case found && network == "tcp":
	case found:
		return nil, fmt.Errorf("address %q: %s", text, allowedAddresses)
	default:
		place = text
	}
	host, err := hostPort(place)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w: %s", text, err, allowedAddresses)
	}
	return dialed(host, "tcp", host), nil
}

// hostPort checks an address of TCP. Without a host it is this machine.
func hostPort(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("it is no host with a port")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("port %q is none", port)
	}
	if strings.ContainsAny(host, " @/?#%") {
		return "", fmt.Errorf("host %q is none", host)
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), nil
}

// dialTimeout is how long a connection may take.
const dialTimeout = 2 * time.Second

func dialed(host, network, address string) *Address {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Address{host: host, dial: func(ctx context.Context) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	}}
}

// parseSSH reads what stands behind ssh://.
func parseSSH(text, rest string) (*Address, error) {
	target, there, _ := strings.Cut(rest, "/")
	if there == "" {
		there = defaultAdmin
	}
	there, err := hostPort(there)
	if err != nil {
		return nil, fmt.Errorf("address %q: the address there: %w: %s", text, err, allowedAddresses)
	}
	parsed, err := url.Parse("ssh://" + target)
	if err != nil || parsed.Hostname() == "" || strings.HasPrefix(target, "-") {
		return nil, fmt.Errorf("address %q names no host: %s", text, allowedAddresses)
	}
	if _, secret := parsed.User.Password(); secret {
		return nil, fmt.Errorf("address of %s has a password: ssh takes keys alone here", parsed.Hostname())
	}
	way := &tunnel{user: parsed.User.Username(), host: parsed.Hostname(), port: parsed.Port(), there: there}
	return &Address{host: there, dial: way.dial}, nil
}
