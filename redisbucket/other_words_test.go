package redisbucket

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestW9OtherWords reads what Redis 7, Redis 8 and Valkey 8 each say of a script whose
// user may not run one of its commands, and what the server of this machine says.
func TestW9OtherWords(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"ERR The user executing the script can't run this command or subcommand script: 4e12, on @user_script:1.",
		"ERR ACL failure in script: User gateway has no permissions to run the 'hset' command script: 4e12, on @user_script:1.",
		"NOPERM this user has no permissions to run the 'hset' command",
	} {
		require.Equal(t, "noperm", Reason(fmt.Errorf("taking: %w", replyError(said))), said)
	}
	server := servertest.Redis(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "gateway", "on", "nopass", "~*", "+@all", "-hset").Err())
	user := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "gateway", Password: "any", Protocol: 2})
	defer user.Close()
	err := user.Eval(t.Context(), "return redis.call('HSET', KEYS[1], 'a', 1)", []string{"k"}).Err()
	require.Error(t, err)
	require.Equal(t, "noperm", Reason(err), err.Error())
}

// TestW9TooOld names the oldest Redis that works, wherever one before it is told.
func TestW9TooOld(t *testing.T) {
	t.Parallel()
	oldest := fmt.Sprintf("%d.%d", minMajor, minMinor)
	require.Contains(t, VersionTooOld.String(), oldest)
	require.Contains(t, errVersion.Error(), oldest)
	require.True(t, tooOld("6.1.9"))
	require.False(t, tooOld(oldest+".0"))
}
