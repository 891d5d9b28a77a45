package servertest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresPackage is what a machine without PostgreSQL needs.
const postgresPackage = "postgresql"

// postgresUser is the superuser of every server; there is no password.
const postgresUser = "postgres"

// postgresDatabase is the database that a server comes with.
const postgresDatabase = "postgres"

// PostgresServer is a private PostgreSQL on a loopback port. It trusts everyone,
// flushes nothing to disk and writes every statement to its log. The server and
// its files end with the test.
type PostgresServer struct {
	// Addr is the host and port that it listens on, the same over restarts.
	Addr string

	dir     string
	process *process
}

// Postgres starts a PostgreSQL of its own for the test.
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	server := newPostgres(t)
	files, err := postgresTemplate()
	if err != nil {
		t.Fatalf("making a data directory: %v", err)
	}
	if err := files.write(server.data(), owner()); err != nil {
		t.Fatalf("copying the data directory: %v", err)
	}
	server.start(t)
	return server
}

// Standby starts a hot standby of s: it follows s and refuses to write or LISTEN.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	standby := newPostgres(t)
	host, port, _ := net.SplitHostPort(s.Addr)
	cmd := postgresCommand(find(t, "pg_basebackup", postgresPackage, postgresBinaries),
		"--host", host, "--port", port, "--username", postgresUser, "--pgdata", standby.data(),
		"--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copying the primary: %v\n%s", err, out)
	}
	standby.start(t)
	return standby
}

// newPostgres makes the place of a server, under /tmp because the path of its
// socket may not be longer than 107 bytes, and because it belongs to another user.
func newPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "postgres")
	if err == nil {
		err = owner().own(dir)
	}
	if err != nil {
		t.Fatalf("making the server's directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &PostgresServer{Addr: FreeAddr(t), dir: dir}
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *PostgresServer) log() string { return filepath.Join(s.dir, "log") }

// start launches the server and waits until it answers. It is launched again
// where it ends at once, which it does while processes of a killed one linger.
func (s *PostgresServer) start(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { s.Stop(t) })
	binary := find(t, "postgres", postgresPackage, postgresBinaries)
	s.process = launch(t, postgresCommand(binary, s.arguments()...), s.log())
	s.process.await(t, s.ping, func() {
		*s.process = *launch(t, postgresCommand(binary, s.arguments()...), s.log())
	})
}

func (s *PostgresServer) arguments() []string {
	_, port, _ := net.SplitHostPort(s.Addr)
	arguments := []string{"-D", s.data()}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "port=" + port, "unix_socket_directories=" + s.dir,
		"fsync=off", "full_page_writes=off", "autovacuum=off", "jit=off",
		"shared_buffers=16MB", "max_connections=40", "min_wal_size=2MB", "max_wal_size=64MB",
		"logging_collector=off", "log_statement=all", "log_connections=on", "log_line_prefix=%p|%d|%a|",
	} {
		arguments = append(arguments, "-c", setting)
	}
	return arguments
}

func (s *PostgresServer) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(postgresDatabase))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// URL returns the address of a database on the server, "" for the one that it
// comes with.
func (s *PostgresServer) URL(database string) string {
	return PostgresURL(s.Addr, database)
}

// PostgresURL is URL for a server that is reached through another address, such
// as that of a proxy.
func PostgresURL(addr, database string) string {
	if database == "" {
		database = postgresDatabase
	}
	u := url.URL{Scheme: "postgres", User: url.User(postgresUser), Host: addr, Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

// SocketDir returns the folder of the server's Unix socket.
func (s *PostgresServer) SocketDir() string { return s.dir }

// Exec runs sql in the database that the server comes with. Without arguments
// it may be several statements.
func (s *PostgresServer) Exec(t testing.TB, sql string, arguments ...any) {
	t.Helper()
	s.ExecIn(t, postgresDatabase, sql, arguments...)
}

// ExecIn is Exec in another database.
func (s *PostgresServer) ExecIn(t testing.TB, database, sql string, arguments ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(database)+"&application_name=test")
	if err != nil {
		t.Fatalf("connecting to PostgreSQL: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, arguments...); err != nil {
		t.Fatalf("running %.200q: %v", sql, err)
	}
}

// QueryInt returns the whole number that sql asks for.
func (s *PostgresServer) QueryInt(t testing.TB, sql string, arguments ...any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("")+"&application_name=test")
	if err != nil {
		t.Fatalf("connecting to PostgreSQL: %v", err)
	}
	defer conn.Close(ctx)
	var n int
	if err := conn.QueryRow(ctx, sql, arguments...).Scan(&n); err != nil {
		t.Fatalf("running %.200q: %v", sql, err)
	}
	return n
}

// PSQL runs a script in psql, which ends at the first error.
func (s *PostgresServer) PSQL(t testing.TB, script string) {
	t.Helper()
	cmd := exec.Command(find(t, "psql", "postgresql-client", postgresBinaries),
		"--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--dbname", s.URL(""))
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("running a script in psql: %v\n%s", err, out)
	}
}

// CreateDatabase makes an empty database on the server and returns its name.
func (s *PostgresServer) CreateDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("db%d", s.QueryInt(t, "SELECT count(*) FROM pg_database"))
	s.Exec(t, "CREATE DATABASE "+name)
	return name
}

// Stop ends the server the fast way: sessions are cut, the data is kept.
func (s *PostgresServer) Stop(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGINT)
}

// Kill ends the server the hard way, as a crash would.
func (s *PostgresServer) Kill(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGKILL)
}

// Restart ends the server if it runs and starts it with the same port and data.
func (s *PostgresServer) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.start(t)
}

// Statement is one SQL statement that a server has logged.
type Statement struct {
	// Database and Application tell where it was run and by whom.
	Database, Application string
	// Text is its first line.
	Text string
}

// Statements returns what the server has been asked since it was made, except
// by this package and the tests themselves.
func (s *PostgresServer) Statements(t testing.TB) []Statement {
	t.Helper()
	log, err := os.ReadFile(s.log())
	if err != nil {
		t.Fatalf("reading the server's log: %v", err)
	}
	var statements []Statement
	for line := range strings.Lines(string(log)) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), "|", 4)
		if len(fields) < 4 || fields[2] == "test" {
			continue
		}
		if text, found := statementText(fields[3]); found {
			statements = append(statements, Statement{Database: fields[1], Application: fields[2], Text: text})
		}
	}
	return statements
}

func statementText(message string) (string, bool) {
	message, found := strings.CutPrefix(message, "LOG:  ")
	if !found {
		return "", false
	}
	if text, found := strings.CutPrefix(message, "statement: "); found {
		return text, true
	}
	if strings.HasPrefix(message, "execute ") {
		_, text, found := strings.Cut(message, ": ")
		return text, found
	}
	return "", false
}

// postgresCommand is a command of the user that owns the data: PostgreSQL
// refuses to run as root.
func postgresCommand(binary string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(binary, arguments...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner().credential()}
	return cmd
}
