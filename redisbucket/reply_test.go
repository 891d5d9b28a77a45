package redisbucket

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// twoBuckets is a request whose reply has seven integers.
func twoBuckets(t testing.TB) *limit.Request {
	t.Helper()
	r := rule(t, 10, 0.001)
	return &limit.Request{Buckets: []limit.Bucket{{Rule: r}, {Rule: r}}, Cost: 1, Count: 3}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	req := twoBuckets(t)
	got, err := batchOf("", req).answerTo([]byte("*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:10000\r\n"))
	require.NoError(t, err)
	require.Equal(t, limit.Decision{
		Granted: 3, Source: limit.SourceRedis,
		First: limit.State{Remaining: 7, ResetAfter: 3 * time.Second},
		Rest:  []limit.State{{RetryAfter: limit.Never, ResetAfter: 10 * time.Second}},
	}, got)
	for _, reply := range []string{
		"", "*", "*7", "*7\r\n", "*6\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:10000\r\n:1\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-2\r\n:10000\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:-1\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:1.5\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:+1\r\n",
		"*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:\r\n",
		"*7\r\n:4\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:1\r\n",
		"*7\r\n$1\r\n3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:1\r\n",
	} {
		_, err := batchOf("", req).answerTo([]byte(reply))
		require.ErrorIs(t, err, errReply, "%q", reply)
	}
	_, err = batchOf("", req).answerTo([]byte("-OOM x\r\n"))
	require.EqualError(t, err, "OOM x")
}

func TestReplyIsBounded(t *testing.T) {
	t.Parallel()
	var r replies
	r.expect(1, 10)
	r.data = append(r.data, "*9\r\n:1\r\n"...)
	require.NoError(t, r.find())
	require.False(t, r.complete())
	r.data = append(r.data, ":2\r\n"...)
	require.ErrorIs(t, r.find(), errReply)
}

func TestRepliesAsTheyCome(t *testing.T) {
	t.Parallel()
	const stream = "+OK\r\n*2\r\n:1\r\n*1\r\n$4\r\na\r\nb\r\n-ERR x\r\n$-1\r\n*0\r\n*-1\r\n:-7\r\n"
	want := []any{"OK", []any{int64(1), []any{"a\r\nb"}}, replyError("ERR x"), nil, []any{}, nil, int64(-7)}
	for size := 1; size <= len(stream); size++ {
		var r replies
		r.expect(len(want), len(stream))
		for at := 0; at < len(stream); at += size {
			require.False(t, r.complete())
			r.data = append(r.data, stream[at:min(at+size, len(stream))]...)
			require.NoError(t, r.find())
		}
		require.True(t, r.complete())
		for i := range want {
			got, err := valueOf(r.reply(i))
			if err != nil {
				got = err
			}
			require.Equal(t, want[i], got)
		}
		r.data = append(r.data, ":1\r\n"...)
		require.ErrorIs(t, r.find(), errReply, "it goes on")
	}
}

// FuzzReplies reads what a server may say: no reply is longer than what has come,
// and each that is whole can be read.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n:1\r\n$1\r\na\r\n"))
	f.Add([]byte("*99999999999\r\n"))
	f.Add([]byte("$-1\r\n-ERR x\r\n+OK\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		length, err := replyLength(data, 0)
		require.LessOrEqual(t, length, len(data))
		if err != nil || length == 0 {
			require.Zero(t, length)
			return
		}
		_, _ = valueOf(data[:length])
	})
}

// FuzzDecode holds every reply that is accepted to what a Limiter promises.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("*7\r\n:3\r\n:7\r\n:0\r\n:3000\r\n:0\r\n:-1\r\n:10000\r\n"))
	f.Add([]byte("-NOSCRIPT x\r\n"))
	f.Add([]byte("*7\r\n:3\r\n:7\r\n:999999999999999999\r\n"))
	req := twoBuckets(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := batchOf("", req).answerTo(data)
		if err != nil {
			require.Zero(t, d)
			return
		}
		require.LessOrEqual(t, d.Granted, req.Count)
		require.GreaterOrEqual(t, d.Granted, int64(0))
		require.Len(t, d.Rest, 1)
		for i := range req.Buckets {
			state := d.At(i)
			require.LessOrEqual(t, state.Remaining, int64(10))
			require.GreaterOrEqual(t, state.Remaining, int64(0))
			require.GreaterOrEqual(t, state.ResetAfter, time.Duration(0))
			require.GreaterOrEqual(t, state.RetryAfter, limit.Never)
			require.LessOrEqual(t, state.RetryAfter, 3*limit.MaxWindow)
		}
	})
}

func TestReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'. script: 4e12, on @user_script:1.": "oom",
		"-OOM command not allowed": "oom",
		"ERR Error running script (call to f_4e12): @user_script:12: @user_script: 12: -OOM command":  "oom",
		"ERR Error running script (call to f_4e12): @user_script:12: -READONLY You can't write":       "readonly",
		"ERR Error running script (call to f_4e12): @user_script:12: user_script:12: attempt to call": "other",
		"WRONGPASS invalid username-password pair":                                                    "noauth",
		"ERR unknown command": "other",
		"ERR ACL failure in script: User gateway has no permissions to run the 'hset' command": "noperm",
		"ERR The user executing the script can't run this command or subcommand":               "noperm",
		"TRYAGAIN x":              "tryagain",
		"BUSY Redis is busy":      "busy",
		"NOREPLICAS Not enough":   "noreplicas",
		"":                        "other",
		"<password> in any shape": "other",
	} {
		require.Equal(t, want, Reason(fmt.Errorf("taking: %w", replyError(text))), text)
	}
	require.Empty(t, Reason(nil))
	require.Equal(t, "other", Reason(errors.New("x")))
	require.Equal(t, "reply", Reason(redis.Nil))
}
