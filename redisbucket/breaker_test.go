package redisbucket

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestF1Breaker(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 5, Open: time.Second}})
	r := rule(t, 1000, 0.001)
	calls := func() int { return p.proxy.Commands("EVAL", "EVALSHA") }
	p.proxy.Set(t, servertest.Fault{SilentFor: []string{"EVAL", "EVALSHA"}})
	for range 5 {
		_, err := quick(p, r)
		require.Equal(t, "timeout", Reason(err))
	}
	require.Equal(t, 5, calls())
	require.Equal(t, "open", p.client.Status().Breaker)
	require.Equal(t, "timeout", p.client.Status().LastReason)

	begin := time.Now()
	_, reasons := quickAtOnce(p, r, 100)
	require.Equal(t, map[string]int{"breaker_open": 100}, reasons)
	require.Less(t, time.Since(begin), patience)
	require.Equal(t, 5, calls(), "none while open")

	p.awaitHalfOpen(t)
	p.awaitLanes(t)
	_, reasons = quickAtOnce(p, r, 100)
	require.Equal(t, map[string]int{"breaker_open": 99, "timeout": 1}, reasons)
	require.Equal(t, 6, calls(), "one probe")

	p.proxy.Set(t, servertest.Fault{})
	p.awaitHalfOpen(t)
	p.awaitLanes(t)
	d := take(t, p, r)
	require.Equal(t, int64(1), d.Granted, "the probe needs no handshake")
	granted, reasons := quickAtOnce(p, r, 100)
	require.Empty(t, reasons)
	require.Equal(t, 100, granted)
}

// awaitHalfOpen waits for the open time to end. It is the breaker's own clock,
// which gobreaker does not let a test set.
func (p *proxied) awaitHalfOpen(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return p.client.Status().Breaker == "half-open" }, 20*time.Second, time.Millisecond)
}

// TestBreakerHalf opens it on half of the calls, none of them in a row.
func TestBreakerHalf(t *testing.T) {
	t.Parallel()
	fake := servertest.FakeRedis(t, nil)
	l := started(t, Options{URLs: []string{fake.URL()}, Breaker: Breaker{Failures: 1000}})
	r := rule(t, 10, 0.001)
	for i := range 20 {
		require.Equal(t, "closed", l.client.Status().Breaker)
		if i%2 == 0 {
			fake.AnswerScripts([]byte("*4\r\n:1\r\n:9\r\n:0\r\n:1\r\n"))
		} else {
			fake.AnswerScripts([]byte("-ERR x\r\n"))
		}
		_, _ = quick(l, r)
	}
	require.Equal(t, "open", l.client.Status().Breaker)
}

func TestBreakerOff(t *testing.T) {
	t.Parallel()
	fake := servertest.FakeRedis(t, []byte("-ERR x\r\n"))
	l := started(t, Options{URLs: []string{fake.URL()}, Breaker: Breaker{Off: true}})
	for range 30 {
		_, err := quick(l, rule(t, 10, 0.001))
		require.Equal(t, "other", Reason(err))
	}
	require.Equal(t, 30, fake.Calls("EVALSHA"))
	require.Equal(t, "off", l.client.Status().Breaker)
}

func TestF5ErrorShapes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply, reason string
	}{
		"never":         {"", "timeout"},
		"nil":           {"$-1\r\n", "reply"},
		"nil list":      {"*-1\r\n", "reply"},
		"empty list":    {"*0\r\n", "reply"},
		"one element":   {"*1\r\n:1\r\n", "reply"},
		"one too many":  {"*5\r\n:1\r\n:9\r\n:0\r\n:1\r\n:1\r\n", "reply"},
		"strings":       {"*4\r\n$1\r\n1\r\n$1\r\n9\r\n$1\r\n0\r\n$1\r\n1\r\n", "reply"},
		"nested":        {"*4\r\n*0\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"granted 2":     {"*4\r\n:2\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"granted -1":    {"*4\r\n:-1\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"remaining 11":  {"*4\r\n:1\r\n:11\r\n:0\r\n:1\r\n", "reply"},
		"remaining -1":  {"*4\r\n:1\r\n:-1\r\n:0\r\n:1\r\n", "reply"},
		"wait too long": {"*4\r\n:1\r\n:9\r\n:9223372036854775807\r\n:1\r\n", "reply"},
		"ERR":           {"-ERR x\r\n", "other"},
		"OK":            {"+OK\r\n", "reply"},
		"integer":       {":1\r\n", "reply"},
		"half a reply":  {"*4\r\n:1\r\n:9", "cut"},
		"garbage":       {"\x16\x03\x01 garbage\r\n", "reply"},
		"huge list":     {"*99999999999\r\n", "timeout"},
		"READONLY":      {"-READONLY You can't write against a read only replica.\r\n", "readonly"},
		"LOADING":       {"-LOADING Redis is loading the dataset in memory\r\n", "loading"},
		"OOM":           {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "oom"},
		"OOM of 6.2":    {"-ERR Error running script (call to f_4e1243bd22c66e76c2ba9eddc1f91394e57f9f83): @user_script:12: @user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.\r\n", "oom"},
		"MISCONF":       {"-MISCONF Redis is configured to save RDB snapshots\r\n", "misconf"},
		"NOAUTH":        {"-NOAUTH Authentication required.\r\n", "noauth"},
		"NOPERM":        {"-NOPERM this user has no permissions\r\n", "noperm"},
		"CLUSTERDOWN":   {"-CLUSTERDOWN The cluster is down\r\n", "clusterdown"},
		"MASTERDOWN":    {"-MASTERDOWN Link with MASTER is down\r\n", "masterdown"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := servertest.FakeRedis(t, []byte(test.reply))
			if test.reason == "cut" {
				fake.CutAfterScripts()
				test.reason = "connection"
			}
			l := started(t, Options{URLs: []string{fake.URL()}, Breaker: Breaker{Failures: 2}})
			for range 2 {
				require.Equal(t, "closed", l.client.Status().Breaker)
				d, err := quick(l, rule(t, 10, 0.001))
				require.Equal(t, test.reason, Reason(err), "%v", err)
				require.Zero(t, d)
			}
			require.Equal(t, "open", l.client.Status().Breaker, "failures are counted")
			require.Equal(t, 2, fake.Calls("EVAL", "EVALSHA"), "asked once each")
		})
	}
}

func TestMovedIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n", "-WRONGTYPE Operation\r\n", "-NOSCRIPT No matching script\r\n",
		"-CLUSTERDOWN Hash slot not served\r\n",
	} {
		fake := servertest.FakeRedis(t, []byte(reply))
		l := started(t, Options{URLs: []string{fake.URL()}, Breaker: Breaker{Failures: 1}})
		for range 3 {
			_, err := quick(l, rule(t, 10, 0.001))
			require.Error(t, err)
		}
		require.Equal(t, "closed", l.client.Status().Breaker, reply)
	}
}

// TestWaitIsNoFailure asks more at once than there are lanes, on a slow Redis.
func TestWaitIsNoFailure(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 1}})
	take(t, p, rule(t, 1000, 0.001))
	p.proxy.Set(t, servertest.Fault{ReplyDelay: 4 * decisionTimeout / 5})
	calls := p.proxy.Commands("EVALSHA")
	var wait sync.WaitGroup
	for i := range leastSenders { // both places are taken
		wait.Go(func() { _, _ = quick(p, rule(t, 1000, 0.001)) })
		require.Eventually(t, func() bool { return p.proxy.Commands("EVALSHA") > calls+i }, 10*time.Second, 100*time.Microsecond)
	}
	granted, reasons := quickAtOnce(p, rule(t, 1000, 0.001), 3*mostLanes)
	wait.Wait()
	t.Logf("%d granted, %v", granted, reasons)
	require.Positive(t, reasons["wait"])
	require.LessOrEqual(t, p.proxy.Commands("EVALSHA"), mostLanes+1, "what waited too long is not sent")
}

func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 1}})
	r := rule(t, 1000, 0.001)
	late := ask(r)
	late.Deadline = time.Now().Add(-time.Millisecond)
	_, err := p.Take(t.Context(), late)
	require.Equal(t, "wait", Reason(err))
	require.Zero(t, p.proxy.Commands("EVAL", "EVALSHA"), "what is late is not sent")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Take(canceled, ask(r))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "canceled", Reason(err))

	p.proxy.Set(t, servertest.Fault{SilentFor: []string{"EVAL", "EVALSHA"}})
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = p.Take(short, ask(r))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "closed", p.client.Status().Breaker, "a caller's haste is not Redis' fault")

	var calls atomic.Int32
	var wait sync.WaitGroup
	leaving, leave := context.WithCancel(t.Context())
	for range 3 * mostLanes {
		wait.Go(func() {
			req := ask(r)
			req.Deadline = time.Now().Add(time.Minute)
			if _, err := p.Take(leaving, req); Reason(err) == "canceled" {
				calls.Add(1)
			}
		})
	}
	time.AfterFunc(20*time.Millisecond, leave)
	wait.Wait()
	require.Positive(t, calls.Load())
}

// TestOneHiccupIsOneFailure has many calls under way when Redis stops answering
// for a moment: that is no row of failures.
func TestOneHiccupIsOneFailure(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	l := started(t, Options{URLs: []string{"redis://" + proxy.Addr()}})
	ask := func(i int) error {
		_, err := l.Take(t.Context(), limit.Request{
			Buckets:  []limit.Bucket{{Key: limit.Key{Tenant: fmt.Sprint("t", i), Route: "a"}, Rule: rule(t, 10, 0.001)}},
			Cost:     1,
			Count:    1,
			Deadline: time.Now().Add(300 * time.Millisecond),
		})
		return err
	}
	require.NoError(t, ask(0))
	proxy.Set(t, servertest.Fault{SilentFor: []string{"EVALSHA", "EVAL"}})
	var wait sync.WaitGroup
	for i := range 50 {
		wait.Go(func() {
			if ask(i) == nil {
				t.Error("answered by a silent server")
			}
		})
	}
	wait.Wait()
	require.Equal(t, "closed", l.Client().Status().Breaker)
	proxy.Set(t, servertest.Fault{})
	require.NoError(t, ask(0))
}

// TestLongTimeout waits for as long as it is asked to.
func TestLongTimeout(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	l := started(t, Options{URLs: []string{"redis://" + proxy.Addr()}})
	proxy.Set(t, servertest.Fault{ReplyDelay: 1500 * time.Millisecond})
	_, err := l.Take(t.Context(), limit.Request{
		Buckets:  []limit.Bucket{{Key: theKey, Rule: rule(t, 10, 0.001)}},
		Cost:     1,
		Count:    1,
		Deadline: time.Now().Add(5 * time.Second),
	})
	require.NoError(t, err)
}

// TestUnreachedIsToldOnce tells of a Redis that is not there also while no
// breaker counts.
func TestUnreachedIsToldOnce(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	proxy.Set(t, servertest.Fault{Refuse: true})
	node, err := NewClient(Options{URLs: []string{"redis://" + proxy.Addr()}, Breaker: Breaker{Off: true}})
	require.NoError(t, err)
	events := make(chan Event, 100)
	stop := node.Start(func(event Event) { events <- event })
	defer stop()
	require.Equal(t, Unreached, (<-events).Kind)
	time.Sleep(300 * time.Millisecond) // for more attempts
	proxy.Set(t, servertest.Fault{})
	require.Equal(t, Reached, (<-events).Kind)
}
