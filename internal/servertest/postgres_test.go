package servertest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPostgresKeepsDataOverStopAndKill(t *testing.T) {
	t.Parallel()
	server := Postgres(t)
	server.Exec(t, "CREATE TABLE a (n int); INSERT INTO a VALUES (7); CHECKPOINT")
	addr := server.Addr

	server.Stop(t)
	_, err := net.Dial("tcp", addr)
	require.Error(t, err)
	server.Restart(t)
	require.Equal(t, 7, server.QueryInt(t, "SELECT n FROM a"))

	server.Kill(t)
	server.Restart(t)
	require.Equal(t, 7, server.QueryInt(t, "SELECT n FROM a"))
	require.Equal(t, addr, server.Addr)
}

func TestPostgresStandbyFollows(t *testing.T) {
	t.Parallel()
	server := Postgres(t)
	server.Exec(t, "CREATE TABLE a (n int); INSERT INTO a VALUES (7)")
	standby := server.Standby(t)
	require.Equal(t, 1, standby.QueryInt(t, "SELECT pg_is_in_recovery()::int"))
	require.Equal(t, 7, standby.QueryInt(t, "SELECT n FROM a"))
}

func TestPostgresDatabasesAndStatements(t *testing.T) {
	t.Parallel()
	server := Postgres(t)
	one, two := server.CreateDatabase(t), server.CreateDatabase(t)
	require.NotEqual(t, one, two)
	server.ExecIn(t, two, "SELECT 1")
	require.Empty(t, server.Statements(t), "the tests' own statements do not count")
}
