package rulecache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// endSessions ends every session of the rules, as a rotation does.
const endSessions = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'`

// TestD3RotatedPassword replaces the password, where it is written and in
// PostgreSQL, and ends the sessions.
func TestD3RotatedPassword(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, `CREATE ROLE gateway LOGIN PASSWORD 'one'; GRANT SELECT ON rate_limit_rule TO gateway`)
	server.Demand(t, "host all gateway 127.0.0.1/32 scram-sha-256")
	dir := t.TempDir()
	secret, passfile := filepath.Join(dir, "secret"), filepath.Join(dir, "pgpass")
	write := func(password string) {
		require.NoError(t, os.WriteFile(secret, []byte("  "+password+"\n"), 0o600))
		require.NoError(t, os.WriteFile(passfile, []byte("*:*:*:gateway:"+password+"\n"), 0o600))
	}
	write("one")
	var fixtures []*fixture
	for _, options := range []Options{
		{
			DSN: strings.Replace(server.URL(""), "postgres@", "gateway:{secret}@", 1) + " \n",
			Expand: func(dsn string) (string, error) {
				text, err := os.ReadFile(secret)
				return strings.ReplaceAll(dsn, "{secret}", strings.TrimSpace(string(text))), err
			},
		},
		{DSN: strings.Replace(server.URL(""), "postgres@", "gateway@", 1) + "&passfile=" + passfile},
	} {
		fixtures = append(fixtures, beginWith(t, options, Settings{Refresh: time.Second}).listening(t))
	}
	server.Exec(t, `ALTER ROLE gateway PASSWORD 'two'`)
	server.Exec(t, endSessions)
	for _, rules := range fixtures {
		within(t, 20*time.Second, "the old one is refused", func() bool { return rules.Status().Failures > 0 })
		require.Contains(t, rules.Status().LastError, "the user or password is not accepted")
		require.EqualValues(t, 2, rules.capacity("a"))
	}
	write("two")
	server.Exec(t, updateRule, 7)
	for _, rules := range fixtures {
		within(t, 30*time.Second, "the new one counts", func() bool { return rules.capacity("a") == 7 })
		rules.listening(t)
	}

	// What cannot be read any more is told, and the rules stay.
	require.NoError(t, os.WriteFile(secret, []byte("two@/"), 0o600))
	server.Exec(t, endSessions)
	within(t, 20*time.Second, "an address that is none", func() bool {
		return strings.Contains(fixtures[0].Status().LastError, "the address of the database: ")
	})
	require.NotContains(t, fixtures[0].Status().LastError, "two")
	require.EqualValues(t, 7, fixtures[0].capacity("a"))
}

// TestD3RotatedCertificates replaces those of the server and of the client, and
// with them the authorities that either trusts.
func TestD3RotatedCertificates(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, `CREATE ROLE servertest LOGIN; GRANT SELECT ON rate_limit_rule TO servertest`)
	files := servertest.NewCertificate(t)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	rotate := func() {
		own, client := servertest.NewCertificate(t), servertest.NewCertificate(t)
		for to, from := range map[string]string{authority: own.CertFile, files.CertFile: client.CertFile, files.KeyFile: client.KeyFile} {
			text, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, text, 0o600))
		}
		server.UseTLS(t, own, client)
	}
	server.Demand(t, "hostssl all servertest 127.0.0.1/32 cert")
	rotate()
	dsn := "postgres://servertest@" + server.Addr + "/postgres?sslmode=verify-full&sslrootcert=" + authority + "&sslcert=" + files.CertFile + "&sslkey=" + files.KeyFile
	rules := begin(t, dsn, Settings{Refresh: time.Second}).listening(t)
	rotate()
	server.Exec(t, updateRule, 7)
	within(t, 30*time.Second, "the new ones count", func() bool { return rules.capacity("a") == 7 })
	rules.listening(t)
}
