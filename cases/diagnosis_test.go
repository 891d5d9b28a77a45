package cases_test

import (
	"encoding/json"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// lastErrors are the reason and Redis' words of each node's last error, by the status.
func lastErrors(t *testing.T, g *gateway.Process) (told [][2]string) {
	t.Helper()
	var status struct {
		Redis struct {
			Nodes []struct {
				LastError struct{ Reason, Words string } `json:"last_error"`
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(g.AdminGet("/rate_limit/status")), &status))
	for _, node := range status.Redis.Nodes {
		told = append(told, [2]string{node.LastError.Reason, node.LastError.Words})
	}
	return told
}

// TestH13Diagnosis has a Redis that takes no connection say why, in its own words, in
// the log, the status and the command.
func TestH13Diagnosis(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		redis func(t *testing.T) (url string)
		words string // a pattern
	}{
		"database":       {func(t *testing.T) string { return strings.TrimSuffix(servertest.Redis(t).URL(), "/0") + "/99" }, `ERR DB index is out of range`},
		"maxclients":     {fullOfClients, `ERR max number of clients reached`},
		"protected mode": {protected, `DENIED \w+ is running in protected mode .*`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+test.redis(t)+" {\ntimeout 1s\n}\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
			require.Equal(t, "local", g.Get("/", "t").Source())
			var told [2]string
			gateway.Eventually(t, 30*time.Second, "the status has Redis' words", func() bool {
				errors := lastErrors(t, g)
				if len(errors) == 1 {
					told = errors[0]
				}
				return told[1] != ""
			})
			require.Equal(t, "other", told[0])
			require.Regexp(t, "^"+test.words+"$", told[1])
			require.LessOrEqual(t, len(told[1]), 200)
			gateway.Eventually(t, 30*time.Second, "the log has them", func() bool { return lineWith(g.Log(), "redis cannot be reached") != "" })
			var line struct{ Detail, Words string }
			require.NoError(t, json.Unmarshal([]byte(lineWith(g.Log(), "redis cannot be reached")), &line))
			require.Equal(t, told[0], line.Detail)
			require.Equal(t, told[1], line.Words)
			out, _, code := g.Caddy("rate-limit", "status", "--address", g.Admin)
			require.Zero(t, code)
			require.Contains(t, out, told[0]+", "+told[1])
		})
	}
}

// fullOfClients is the address of a Redis that has as many clients as it takes.
func fullOfClients(t *testing.T) string {
	t.Helper()
	s := servertest.Redis(t)
	client := s.Client(t)
	require.NoError(t, client.ConfigSet(t.Context(), "maxclients", "1").Err())
	return s.URL()
}

// protected is the address of a Redis that takes clients of its own machine alone,
// where this one does not come from there.
func protected(t *testing.T) string {
	t.Helper()
	address := ownAddress(t)
	s := servertest.Redis(t, "--bind", "127.0.0.1", address, "--protected-mode", "yes")
	_, port, err := net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	return (&url.URL{Scheme: "redis", Host: net.JoinHostPort(address, port)}).String()
}

// ownAddress is an address of this machine that is not of the loopback interface.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no IPv4 address but those of the loopback interface, from which Redis takes every client")
	return ""
}
