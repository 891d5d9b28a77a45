package servertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// PgBouncer starts a pgbouncer before the server, with as many sessions to it, in
// a pooling mode: session, transaction or statement. It returns its address, and
// ends with the test.
func (s *PostgresServer) PgBouncer(t testing.TB, mode string, sessions int) string {
	t.Helper()
	binary := find(t, "pgbouncer", "pgbouncer", "/usr/sbin")
	dir, err := os.MkdirTemp("/tmp", "pgbouncer")
	if err != nil {
		t.Fatalf("making the pooler's directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	addr := FreeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	_, upstream, _ := net.SplitHostPort(s.Addr)
	settings := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
`, upstream, postgresUser, host, port, mode, sessions)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatalf("writing the pooler's settings: %v", err)
	}
	for _, path := range []string{dir, file} {
		if err := owner().own(path); err != nil {
			t.Fatalf("giving away %s: %v", path, err)
		}
	}
	pooler := launch(t, postgresCommand(binary, file), filepath.Join(dir, "log"))
	t.Cleanup(func() { pooler.signal(t, syscall.SIGTERM) })
	pooler.await(t, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}, nil)
	return addr
}
