package redisbucket

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// logRequest costs so much on each of n logs.
func logRequest(t testing.TB, tenant string, n int, cost int64) limit.Request {
	t.Helper()
	req := limit.Request{Cost: cost, Count: 1, Deadline: time.Now().Add(patience)}
	for i := range n {
		req.Buckets = append(req.Buckets, limit.Bucket{
			Key:  limit.Key{Tenant: tenant, Route: fmt.Sprint("log", i)},
			Rule: ruleOf(t, limit.SlidingWindowLog, 100_000, 100_000),
		})
	}
	return req
}

// TestW1Weight: what one call asks of Redis is bounded, whatever it is made of.
func TestW1Weight(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	for name, test := range map[string]struct {
		requests []limit.Request
		calls    int
	}{
		"costly logs have a call each": {slices.Repeat([]limit.Request{logRequest(t, "a", 1, 300)}, 8), 8},
		"eight logs at once":           {slices.Repeat([]limit.Request{logRequest(t, "b", 8, 30)}, 4), 4},
		"cheap logs share":             {slices.Repeat([]limit.Request{logRequest(t, "c", 1, 1)}, 100), 1},
	} {
		for i := range test.requests {
			test.requests[i].Deadline = time.Now().Add(time.Minute)
			if name != "cheap logs share" {
				test.requests[i].Buckets = slices.Clone(test.requests[i].Buckets)
				test.requests[i].Buckets[0].Key.Tenant = fmt.Sprint(name, i)
			}
		}
		calls := q.proxy.Commands("EVALSHA")
		for _, a := range q.decided(t, test.requests...) {
			require.NoError(t, a.err, name)
			require.EqualValues(t, 1, a.Granted, name)
		}
		require.Equal(t, test.calls, q.proxy.Commands("EVALSHA")-calls, name)
		q = hold(t, Options{})
	}
}

// TestW1OneTenantsBurst: a gateway whose tenant takes much from logs is no trouble
// for another gateway.
func TestW1OneTenantsBurst(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	a, b := started(t, Options{URLs: []string{server.URL()}}), started(t, Options{URLs: []string{server.URL()}})
	var wait sync.WaitGroup
	for i := range 64 {
		wait.Go(func() { _, _ = a.Take(t.Context(), logRequest(t, fmt.Sprint("t", i), 1, 300)) })
	}
	var slowest time.Duration
	for i := range 200 {
		req := ask(rule(t, 1000, 1))
		req.Buckets[0].Key.Tenant = fmt.Sprint("b", i%20)
		answer := timed(t.Context(), b, req)
		require.NoError(t, answer.err)
		slowest = max(slowest, answer.took)
	}
	wait.Wait()
	t.Logf("the slowest took %s", slowest)
	require.Equal(t, "closed", b.client.Status().Breaker)
}

// waited asks steadily for a time, and returns how many requests did not get their
// error at once.
func waited(t testing.TB, l *Limiter, timeout, d time.Duration) (n int) {
	t.Helper()
	r := rule(t, 1_000_000, 1)
	for began := time.Now(); time.Since(began) < d; {
		req := ask(r)
		req.Deadline = time.Now().Add(timeout)
		_, err := l.Take(context.Background(), req)
		switch reason := Reason(err); reason {
		case "timeout", "wait":
			n++
		case "breaker_open", "connection":
			time.Sleep(time.Millisecond)
		default:
			require.Fail(t, "decided by a silent Redis", reason)
		}
	}
	return n
}

// TestW2HalfOpen: while Redis accepts connections and answers nothing, hardly more
// requests wait than probe.
func TestW2HalfOpen(t *testing.T) {
	t.Parallel()
	d := 3 * time.Second
	if servertest.Thorough(t, "10 s of silence instead of 3 s") {
		d = 10 * time.Second
	}
	for name, test := range map[string]struct {
		options Options
		timeout time.Duration
	}{
		"defaults":     {Options{}, realTimeout},
		"slow to dial": {Options{DialTimeout: 10 * time.Second, Breaker: Breaker{Failures: 5, Open: 100 * time.Millisecond}}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := throughProxy(t, test.options)
			take(t, p, rule(t, 1_000_000, 1))
			p.proxy.Set(t, servertest.Fault{Silent: true})
			open := p.client.options.Breaker.Open
			n := waited(t, p.Limiter, test.timeout, d)
			t.Logf("%d waited", n)
			cs := p.sole().current.Load().connections
			cs.mu.Lock()
			overdue := overdueAfter * max(cs.usual, test.timeout) // until then a new connection may come
			cs.mu.Unlock()
			require.LessOrEqual(t, n, 5+leastLanes+2*int(d/open)+int(overdue/test.timeout))
			p.proxy.Set(t, servertest.Fault{})
			require.Eventually(t, func() bool {
				_, err := quick(p, rule(t, 1_000_000, 1))
				return err == nil
			}, 20*time.Second, 10*time.Millisecond)
		})
	}
}

// TestW3SilenceSeenByPing: once PINGs have told that Redis is silent, nobody waits
// for it, though no request has met it.
func TestW3SilenceSeenByPing(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	_, err := soon(p, rule(t, 10, 1))
	require.Contains(t, []string{"", "timeout", "wait"}, Reason(err))
	p.proxy.Set(t, servertest.Fault{Silent: true})
	require.Eventually(t, func() bool {
		_, err := p.sole().current.Load().connections.hopeless()
		return err != nil || p.client.Status().Breaker != "closed"
	}, 30*time.Second, time.Millisecond)
	n := waited(t, p.Limiter, realTimeout, time.Second)
	require.LessOrEqual(t, n, 2+int(time.Second/DefaultBreakerOpen), "but who probes")
}

// TestW3SilenceAtADistance: calls under way together are one event, and still the
// breaker opens soon.
func TestW3SilenceAtADistance(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	p.proxy.Set(t, servertest.Fault{ReplyDelay: 3 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for ctx.Err() == nil {
				req := ask(rule(t, 1_000_000, 1))
				req.Buckets[0].Key.Tenant = fmt.Sprint("t", i)
				req.Deadline = time.Now().Add(20 * time.Millisecond)
				_, _ = p.Take(ctx, req)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	defer wait.Wait()
	defer stop()
	time.Sleep(100 * time.Millisecond) // of traffic
	p.proxy.Set(t, servertest.Fault{Silent: true})
	began := time.Now()
	require.Eventually(t, func() bool { return p.client.Status().Breaker == "open" }, 2*time.Second, time.Millisecond)
	t.Logf("opened after %s", time.Since(began))
}

// TestW4Storm: a Redis that answers too late, or refuses, is not stormed with
// attempts to connect.
func TestW4Storm(t *testing.T) {
	t.Parallel()
	d := 2 * time.Second
	if servertest.Thorough(t, "10 s of late answers instead of 2 s") {
		d = 10 * time.Second
	}
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 5, Open: 200 * time.Millisecond}})
	r := rule(t, 1_000_000, 1)
	take(t, p, r)
	p.proxy.Set(t, servertest.Fault{ReplyDelay: 20 * time.Millisecond})
	require.Eventually(t, func() bool {
		_, _ = soon(p, r)
		return p.client.Status().Breaker == "open"
	}, 10*time.Second, time.Millisecond)
	before, began := p.proxy.Accepted(), time.Now()
	for time.Since(began) < d {
		_, _ = soon(p, r) // on a busy machine an answer may have come before anybody looks
		time.Sleep(time.Millisecond)
	}
	attempts, most := p.proxy.Accepted()-before, 2*int(time.Since(began)/p.sole().circuit.open+1)
	t.Logf("%d attempts, %d allowed", attempts, most)
	require.LessOrEqual(t, attempts, most)
}

// TestW4ErrorsKeepConnections: a Redis that answers with errors is connected to.
func TestW4ErrorsKeepConnections(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-OOM x\r\n", "-LOADING x\r\n", "-MISCONF x\r\n"} {
		fake := servertest.FakeRedis(t, []byte(reply))
		l := started(t, Options{URLs: []string{fake.URL()}, Breaker: Breaker{Failures: 5, Open: 100 * time.Millisecond}})
		require.Eventually(t, func() bool { return l.client.Status().Connections >= leastLanes }, 10*time.Second, time.Millisecond)
		before := fake.Calls("HELLO")
		for began := time.Now(); time.Since(began) < 500*time.Millisecond; time.Sleep(time.Millisecond) {
			_, err := quick(l, rule(t, 10, 1))
			require.Error(t, err)
		}
		require.Equal(t, before, fake.Calls("HELLO"), reply)
	}
}

// TestW4BackOff: a wrong password is tried less and less often while nobody asks,
// and one that works again is found soon after somebody does.
func TestW4BackOff(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := server.Client(t)
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "default", "on", "nopass").Err())
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "gateway", "on", ">right", "~*", "+@all").Err())
	l := started(t, Options{URLs: []string{"redis://gateway:wrong@" + server.Addr}})
	before := accepted(t, client)
	time.Sleep(4 * time.Second)
	require.LessOrEqual(t, accepted(t, client)-before, 3)
	require.NoError(t, client.Do(t.Context(), "acl", "setuser", "gateway", ">wrong").Err())
	began := time.Now()
	require.Eventually(t, func() bool {
		_, err := quick(l, rule(t, 10, 1))
		return err == nil
	}, 20*DefaultBreakerOpen, 5*time.Millisecond)
	t.Logf("found after %s", time.Since(began))
}

// lateConn says that the time is over at the first read, as a connection does whose
// reader is late, though the answer has come.
type lateConn struct {
	net.Conn
	late bool
}

func (c *lateConn) Read(into []byte) (int, error) {
	if !c.late {
		c.late = true
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(into)
}

// TestW5OwnLateness: an answer that has come is used, however late this process
// notices; what has not come is late.
func TestW5OwnLateness(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	conn, err := net.Dial("tcp", server.Addr)
	require.NoError(t, err)
	defer conn.Close()
	l := &lane{conn: &arrived{lateConn{Conn: conn}}}
	require.NoError(t, l.ping(time.Now().Add(10*time.Second)))
	silent := servertest.NewProxy(t, server.Addr)
	silent.Set(t, servertest.Fault{Silent: true})
	conn, err = net.Dial("tcp", silent.Addr())
	require.NoError(t, err)
	defer conn.Close()
	require.ErrorIs(t, (&lane{conn: conn}).ping(time.Now().Add(10*time.Millisecond)), os.ErrDeadlineExceeded)
}

// arrived is a lateConn whose answer has come when it is looked at once more.
type arrived struct{ lateConn }

func (c *arrived) SetReadDeadline(time.Time) error {
	return c.Conn.SetReadDeadline(time.Now().Add(10 * time.Second))
}

// unconnected is a node that is not started, with calls that end as they are told.
func unconnected(t *testing.T, b Breaker) *node {
	t.Helper()
	client, err := NewClient(Options{URLs: []string{"redis://127.0.0.1:1"}, Breaker: b})
	require.NoError(t, err)
	return client.sole
}

// ends counts a call that began at a time and ended so.
func (n *node) ends(began time.Time, err error) {
	_ = n.guard(&call{bound: func() (struct{}, error) {
		if err == nil {
			n.succeeded()
			return struct{}{}, nil
		}
		return struct{}{}, n.counted(began, err)
	}})
}

// TestW6Ratio: half of the calls that fail open the breaker, also where they are
// under way together.
func TestW6Ratio(t *testing.T) {
	t.Parallel()
	n := unconnected(t, Breaker{Failures: 1000})
	began, calls := time.Now(), 0
	for ; n.circuit.closed() && calls < 1000; calls++ {
		err := error(nil)
		if calls%5 != 0 {
			err = os.ErrDeadlineExceeded
		}
		n.ends(began, err)
	}
	require.Equal(t, breakerCalls, calls)
}

// TestW6Redirects: answers that say nothing about the server hide no row of
// failures.
func TestW6Redirects(t *testing.T) {
	t.Parallel()
	n := unconnected(t, Breaker{Failures: 5})
	calls := 0
	for ; n.circuit.closed() && calls < 100; calls++ {
		began := time.Now()
		n.ends(began, replyError([]string{"MOVED 1 127.0.0.1:1", "TRYAGAIN x"}[calls%2]))
		n.ends(began, os.ErrDeadlineExceeded)
	}
	require.Equal(t, 5, calls)
}

// TestW7Idle: an idle gateway holds few connections, and asks each whether it lives.
func TestW7Idle(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	before := p.proxy.Commands("PING")
	require.Eventually(t, func() bool { return p.proxy.Commands("PING") >= before+2*leastLanes }, 20*pingEvery, 10*time.Millisecond)
	require.Equal(t, leastLanes, p.client.Status().Connections)
	require.Equal(t, leastLanes, p.proxy.Accepted(), "and keeps them")
}

// TestW8MovedSlot: a slot that has moved costs one redirect.
func TestW8MovedSlot(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	r := rule(t, 1000, 0.001)
	slot := int(slotOf([]byte("{t1}")))
	from := c.cluster.MasterOf(t, slot)
	to := c.cluster.Servers[(slices.Index(c.cluster.Servers, from)+1)%3]
	_, err := c.Take(t.Context(), of(r, "t1"))
	require.NoError(t, err)
	c.cluster.BeginMove(t, slot, to)
	c.cluster.Move(t, slot, to)
	before := from.CommandCalls(t, "evalsha")
	for range 20 {
		_, err := c.Take(t.Context(), of(r, "t1"))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, from.CommandCalls(t, "evalsha")-before, 1)
}

// TestDeadlinesAreInOrder answers those whose time is over first, whenever they came.
func TestDeadlinesAreInOrder(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	late, soon := make(chan answer, 1), make(chan answer, 1)
	ask := func(d time.Duration) limit.Request {
		req := askFor(rule(t, 10, 0.001), 1, 1)
		req.Deadline = time.Now().Add(d)
		return req
	}
	go func() { late <- timed(t.Context(), q, ask(time.Minute)) }()
	q.await(t, func(s *senders) bool { return s.waiting == 1 })
	go func() { soon <- timed(context.WithoutCancel(t.Context()), q, ask(10*time.Millisecond)) }()
	a := <-soon
	require.ErrorIs(t, a.err, errWait)
	require.Less(t, a.took, 10*time.Second)
	q.release(t, servertest.Fault{})
	require.NoError(t, (<-late).err)
}

// TestH13DatabaseOutOfRange: a database that is not there is told, and no other one
// keeps the buckets.
func TestH13DatabaseOutOfRange(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	seen := &observed{}
	l := New(seen.start(t, Options{URLs: []string{"redis://" + server.Addr + "/99"}}), "")
	require.Eventually(t, func() bool { return len(seen.get()) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []any{Unreached, "other", "ERR DB index is out of range"}, []any{seen.get()[0].Kind, seen.get()[0].Detail, seen.get()[0].Words})
	_, err := quick(l, rule(t, 10, 1))
	require.ErrorContains(t, err, "DB index is out of range")
	require.Zero(t, l.client.Status().Connections)
	require.Zero(t, server.Client(t).DBSize(t.Context()).Val())
	other := started(t, Options{URLs: []string{"redis://" + server.Addr + "/3"}})
	take(t, other, rule(t, 10, 1))
	require.Zero(t, server.Client(t).DBSize(t.Context()).Val())
}
