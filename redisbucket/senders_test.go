package redisbucket

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// answer is what a Take returned.
type answer struct {
	limit.Decision
	err  error
	took time.Duration
}

// queued is a proxied Limiter with one place, which a call of another tenant
// holds, so that what is asked meanwhile waits for one batch.
type queued struct {
	*proxied
	done chan answer // the other tenant's
}

// hold makes the one place busy until release.
func hold(t *testing.T, o Options) *queued {
	t.Helper()
	o.senders = senderBounds{1, 1}
	q := &queued{throughProxy(t, o), make(chan answer, 1)}
	take(t, q, rule(t, 1000, 0.001)) // the script is there
	require.NoError(t, q.Reset(t.Context(), theKey))
	q.proxy.Set(t, servertest.Fault{Silent: true})
	calls := q.proxy.Commands("EVALSHA")
	req := askFor(rule(t, 10, 0.001), 1, 1)
	req.Buckets[0].Key.Tenant = "other"
	go func() { q.done <- timed(t.Context(), q, req) }()
	require.Eventually(t, func() bool { return q.proxy.Commands("EVALSHA") > calls }, 10*time.Second, 100*time.Microsecond)
	return q
}

// release gives the place back, under another fault.
func (q *queued) release(t *testing.T, f servertest.Fault) {
	t.Helper()
	q.proxy.Set(t, f)
	require.NoError(t, (<-q.done).err)
}

func timed(ctx context.Context, l limit.Limiter, req limit.Request) answer {
	began := time.Now()
	d, err := l.Take(ctx, req)
	return answer{d, err, time.Since(began)}
}

// await waits until the senders are as wanted.
func (p *proxied) await(t *testing.T, wanted func(*senders) bool) {
	t.Helper()
	s := p.sole().current.Load().senders
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return wanted(s)
	}, 10*time.Second, 100*time.Microsecond)
}

// enqueue has the requests wait, in this order. The function that it returns
// waits for their answers.
func (q *queued) enqueue(t *testing.T, requests ...limit.Request) (answers func() []answer) {
	t.Helper()
	all := make([]answer, len(requests))
	var wait sync.WaitGroup
	for i, req := range requests {
		wait.Go(func() { all[i] = timed(t.Context(), q, req) })
		q.await(t, func(s *senders) bool { return s.waiting == i+1 })
	}
	return func() []answer { wait.Wait(); return all }
}

// decided has the requests decided in one batch, or some.
func (q *queued) decided(t *testing.T, requests ...limit.Request) []answer {
	t.Helper()
	answers := q.enqueue(t, requests...)
	q.release(t, servertest.Fault{})
	return answers()
}

// askFor is a request with time enough.
func askFor(r limit.Rule, cost, count int64) limit.Request {
	req := ask(r)
	req.Cost, req.Count = cost, count
	req.Deadline = time.Now().Add(time.Minute)
	return req
}

func TestT4Waiting(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{senders: senderBounds{2, 2}})
	r := rule(t, 1000, 0.001)
	take(t, p, r)
	p.proxy.Set(t, servertest.Fault{ReplyDelay: 4 * time.Millisecond})
	answers := make([]answer, 40)
	var wait sync.WaitGroup
	for i := range answers {
		wait.Go(func() {
			req := ask(r)
			req.Deadline = time.Now().Add(5 * time.Millisecond)
			answers[i] = timed(t.Context(), p, req)
		})
	}
	wait.Wait()
	longest, reasons := time.Duration(0), map[string]int{}
	for _, a := range answers {
		longest = max(longest, a.took)
		reasons[Reason(a.err)]++
	}
	t.Logf("the longest took %s; %v", longest, reasons)
	require.Less(t, longest, patience)
	require.Len(t, answers, reasons[""]+reasons["wait"]+reasons["timeout"])
	require.Less(t, p.proxy.Commands("EVALSHA"), 40)
}

func TestA17BatchOfCosts(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	r := rule(t, 3, 0.001)
	calls := q.proxy.Commands("EVALSHA")
	answers := q.decided(t, askFor(r, 1, 1), askFor(r, 3, 1))
	require.NoError(t, answers[0].err)
	require.Equal(t, int64(1), answers[0].Granted)
	require.Equal(t, int64(2), answers[0].First.Remaining)
	require.NoError(t, answers[1].err)
	require.Zero(t, answers[1].Granted)
	require.Equal(t, int64(2), answers[1].First.Remaining)
	require.Positive(t, answers[1].First.RetryAfter)
	require.Equal(t, calls+1, q.proxy.Commands("EVALSHA"))
}

// TestA17BatchOfRules: two rules for one key are two entries, and another type
// under a key is a matter of that key.
func TestA17BatchOfRules(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	client := q.server.Client(t)
	require.NoError(t, client.Set(t.Context(), "rl:{t1}:foreign", "x", 0).Err())
	foreign := askFor(rule(t, 5, 0.001), 1, 1)
	foreign.Buckets[0].Key.Route = "foreign"
	calls := q.proxy.Commands("EVALSHA")
	answers := q.decided(t, askFor(rule(t, 10, 0.001), 1, 1), foreign, askFor(rule(t, 20, 0.001), 1, 1), askFor(rule(t, 10, 0.001), 1, 1))
	for i, remaining := range []int64{8, 4, 7, 8} {
		if i == 0 {
			remaining = 9 // the fourth is added up with the first
		}
		require.NoError(t, answers[i].err)
		require.Equal(t, int64(1), answers[i].Granted, i)
		require.Equal(t, remaining, answers[i].First.Remaining, i)
	}
	require.Equal(t, "hash", client.Type(t.Context(), "rl:{t1}:foreign").Val())
	require.Equal(t, calls+1, q.proxy.Commands("EVALSHA"))
	require.Empty(t, q.client.Status().LastReason)
}

// TestBatchAddsUp: the oldest pass first, and see more remaining.
func TestBatchAddsUp(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	r, wide := rule(t, 7, 0.001), rule(t, 100, 0.001)
	both := func() limit.Request {
		req := askFor(r, 2, 1)
		req.Buckets = append(req.Buckets, limit.Bucket{Key: limit.Key{Tenant: "t1", Route: "wide"}, Rule: wide})
		return req
	}
	calls := q.proxy.Commands("EVALSHA")
	answers := q.decided(t, both(), both(), both(), both(), both())
	for i, a := range answers {
		require.NoError(t, a.err)
		passes := i < 3
		require.Equal(t, passes, a.Granted == 1, i)
		left := max(1, 5-2*int64(i))
		require.Equal(t, left, a.At(0).Remaining, i)
		require.Equal(t, max(94, 98-2*int64(i)), a.At(1).Remaining, i)
		require.Equal(t, left < 2, a.At(0).RetryAfter > 0, i)
		require.Zero(t, a.At(1).RetryAfter)
	}
	require.Equal(t, calls+1, q.proxy.Commands("EVALSHA"))
}

// TestBatchKeepsPrefetchApart: whoever wants several gets as many as there are,
// and a look changes nothing.
func TestBatchKeepsPrefetchApart(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	r := rule(t, 8, 0.001)
	answers := q.decided(t, askFor(r, 1, 1), askFor(r, 1, 5), askFor(r, 1, 0), askFor(r, 1, 1), askFor(r, 1, 5), askFor(r, 1, 0))
	for i, want := range []struct{ granted, remaining int64 }{{1, 7}, {5, 1}, {0, 1}, {1, 6}, {1, 0}, {0, 0}} {
		require.NoError(t, answers[i].err)
		require.Equal(t, want.granted, answers[i].Granted, i)
		require.Equal(t, want.remaining, answers[i].First.Remaining, i)
	}
}

// TestBatchIsBounded asks for more tenants than fit into one call, and more
// callers of one tenant than there are entries.
func TestBatchIsBounded(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	r := rule(t, 1000, 0.001)
	var requests []limit.Request
	for i := range maxWeight + 1 {
		req := askFor(r, 1, 1)
		req.Buckets[0].Key.Tenant = fmt.Sprint("tenant", i)
		requests = append(requests, req, req, req)
	}
	calls := q.proxy.Commands("EVALSHA")
	for i, a := range q.decided(t, requests...) {
		require.NoError(t, a.err)
		require.Equal(t, int64(1), a.Granted)
		require.Equal(t, int64(999-i%3), a.First.Remaining)
	}
	require.Equal(t, calls+2, q.proxy.Commands("EVALSHA"))
}

func TestPace(t *testing.T) {
	t.Parallel()
	p := pace{bounds: senderBounds{2, 8}, places: 2}
	p.travelled(time.Millisecond)
	for range 100 {
		p.waited(100 * time.Microsecond)
		p.travelled(time.Millisecond)
	}
	require.Equal(t, 2, p.places, "a tenth of the round trip is no wait")
	for range 100 {
		p.waited(300 * time.Microsecond)
	}
	require.Equal(t, 8, p.places)
	for range 100 {
		p.waited(200 * time.Microsecond)
	}
	require.Equal(t, 8, p.places, "it is worth keeping")
	for range 100 {
		p.waited(0)
	}
	require.Equal(t, 2, p.places)
	p.travelled(0)
	require.Equal(t, time.Millisecond, p.trip, "what is not answered does not count")
	for range 100 {
		p.travelled(3 * time.Millisecond)
		p.waited(2 * time.Millisecond)
	}
	require.Equal(t, 2, p.places, "what takes three times as long is busy")
	for range 2000 {
		p.travelled(3 * time.Millisecond)
		p.waited(2 * time.Millisecond)
	}
	require.Equal(t, 8, p.places, "or far away by now")
}
