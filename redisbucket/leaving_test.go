package redisbucket

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestLeavingBeforeSending(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan answer, 1)
	req := askFor(rule(t, 10, 0.001), 1, 1)
	go func() { left <- timed(ctx, q, req) }()
	q.await(t, func(s *senders) bool { return s.waiting == 1 })
	leave()
	a := <-left
	require.ErrorIs(t, a.err, context.Canceled)
	require.Equal(t, "canceled", Reason(a.err))
	q.release(t, servertest.Fault{})
	require.Zero(t, q.server.Client(t).Exists(t.Context(), tokenKey).Val(), "it is not sent")
}

// TestLeavingAfterSending: the unit is lost, others get their answers, and
// nothing is sent again.
func TestLeavingAfterSending(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{Breaker: Breaker{Failures: 1}})
	r := rule(t, 10, 0.001)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan answer, 1)
	go func() { left <- timed(ctx, q, askFor(r, 1, 1)) }()
	q.await(t, func(s *senders) bool { return s.waiting == 1 })
	stays := make(chan answer, 1)
	go func() { stays <- timed(t.Context(), q, askFor(r, 1, 1)) }()
	q.await(t, func(s *senders) bool { return s.waiting == 2 })
	q.release(t, servertest.Fault{ReplyDelay: patience})
	q.await(t, func(s *senders) bool { return s.waiting == 0 })
	leave()
	require.Equal(t, "canceled", Reason((<-left).err))
	a := <-stays
	require.NoError(t, a.err)
	require.Equal(t, int64(8), a.First.Remaining)
	q.proxy.Set(t, servertest.Fault{})
	require.Equal(t, int64(7), take(t, q, r).First.Remaining)
	require.Equal(t, "closed", q.client.Status().Breaker)
}

// TestCallOutlivesHaste: one caller's little time is not the call's, so a reply
// that is late for it costs neither the connection nor the others' answers.
func TestCallOutlivesHaste(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{Breaker: Breaker{Failures: 1}})
	r := rule(t, 10, 0.001)
	accepted := q.proxy.Accepted()
	hasty, patient := ask(r), ask(r)
	hasty.Deadline = time.Now().Add(2 * patience)
	patient.Deadline = time.Now().Add(7 * patience)
	late, stays := make(chan answer, 1), make(chan answer, 1)
	go func() { late <- timed(t.Context(), q, hasty) }()
	go func() { stays <- timed(t.Context(), q, patient) }()
	q.await(t, func(s *senders) bool { return s.waiting == 2 })
	q.release(t, servertest.Fault{SilentFor: []string{"EVALSHA"}})
	require.Equal(t, "timeout", Reason((<-late).err))
	q.proxy.Set(t, servertest.Fault{})
	a := <-stays
	require.NoError(t, a.err)
	require.Equal(t, int64(1), a.Granted)
	require.Equal(t, "closed", q.client.Status().Breaker)
	require.Equal(t, accepted, q.proxy.Accepted(), "no connection was replaced")
}

// TestBatchIsOneFailure: however many wait for a call, it fails once.
func TestBatchIsOneFailure(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{Breaker: Breaker{Failures: 2}})
	r := rule(t, 10, 0.001)
	var requests []limit.Request
	for range 10 {
		req := askFor(r, 1, 1)
		req.Deadline = time.Now().Add(2 * patience)
		requests = append(requests, req)
	}
	answers := q.enqueue(t, requests...)
	q.release(t, servertest.Fault{SilentFor: []string{"EVALSHA"}})
	for _, a := range answers() {
		require.Equal(t, "timeout", Reason(a.err))
	}
	q.await(t, func(s *senders) bool { return s.busy == 0 })
	require.Equal(t, "closed", q.client.Status().Breaker, "one call failed, not ten")
	_, err := quick(q, r)
	require.Equal(t, "timeout", Reason(err))
	require.Equal(t, "open", q.client.Status().Breaker)
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	ctx, leave := context.WithCancel(t.Context())
	req := askFor(rule(t, 10, 0.001), 1, 1)
	var wait sync.WaitGroup
	for range maxQueued {
		wait.Go(func() { _, _ = q.Take(ctx, req) })
	}
	q.await(t, func(s *senders) bool { return s.waiting == maxQueued })
	a := timed(t.Context(), q, req)
	require.ErrorIs(t, a.err, errFull)
	require.Equal(t, "wait", Reason(a.err))
	require.Less(t, a.took, patience)
	require.Equal(t, "closed", q.client.Status().Breaker)
	leave()
	wait.Wait()
}

// TestStopAnswersThoseWhoWait stops with a full queue.
func TestStopAnswersThoseWhoWait(t *testing.T) {
	t.Parallel()
	q := hold(t, Options{})
	req := askFor(rule(t, 10, 0.001), 1, 1)
	answers := q.enqueue(t, req, req, req)
	require.NoError(t, q.client.Destruct())
	for _, a := range answers() {
		require.Equal(t, "closed", Reason(a.err))
		require.Less(t, a.took, 10*time.Second)
	}
	require.Error(t, (<-q.done).err)
}
