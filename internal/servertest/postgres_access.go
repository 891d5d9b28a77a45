package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Demand restarts the server with lines of pg_hba.conf, by which it then lets
// others in than its superuser.
func (s *PostgresServer) Demand(t testing.TB, lines ...string) {
	t.Helper()
	lines = append([]string{"host all " + postgresUser + " 127.0.0.1/32 trust"}, lines...)
	s.write(t, "pg_hba.conf", []byte(strings.Join(lines, "\n")+"\n"))
	s.Restart(t)
}

// UseTLS restarts the server with a certificate, and as the authority of clients'
// certificates another one.
func (s *PostgresServer) UseTLS(t testing.TB, own, clients Certificate) {
	t.Helper()
	for name, path := range map[string]string{
		"server.crt": own.CertFile, "server.key": own.KeyFile, "clients.crt": clients.CertFile,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("reading a certificate: %v", err)
		}
		s.write(t, name, text)
	}
	s.Set(t, "ssl", "on")
	s.Set(t, "ssl_ca_file", "clients.crt")
	s.Restart(t)
}

// Set sets a parameter of the server, which some take over at a restart only.
func (s *PostgresServer) Set(t testing.TB, parameter, value string) {
	t.Helper()
	s.Exec(t, "ALTER SYSTEM SET "+parameter+" = '"+value+"'")
}

// write writes a file into the data directory.
func (s *PostgresServer) write(t testing.TB, name string, text []byte) {
	t.Helper()
	path := filepath.Join(s.data(), name)
	err := os.WriteFile(path, text, 0o600)
	if err == nil {
		err = owner().own(path)
	}
	if err != nil {
		t.Fatalf("writing %s: %v", name, err)
	}
}
