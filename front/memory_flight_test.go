package front_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
)

// gate is a Limiter that answers when it is told to.
type gate struct {
	limit.Limiter
	calls atomic.Int64
	open  chan error // what each call ends with, after Limiter has decided
}

func (g *gate) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	g.calls.Add(1)
	d, err := g.Limiter.Take(ctx, req)
	select {
	case failed := <-g.open:
		if failed != nil {
			return limit.Decision{}, failed
		}
		return d, err
	case <-ctx.Done():
		return limit.Decision{}, ctx.Err()
	}
}

// crowd is requests that are under way.
type crowd struct {
	group   sync.WaitGroup
	mu      sync.Mutex
	granted int64
	refused int64
	sources map[limit.Source]int
	errs    []error
}

// add sends n requests.
func (c *crowd) add(ctx context.Context, l limit.Limiter, n int, req limit.Request) {
	for range n {
		c.group.Go(func() {
			d, err := l.Take(ctx, req)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case err != nil:
				c.errs = append(c.errs, err)
				return
			case d.Granted == 0:
				c.refused++
			}
			c.granted += d.Granted
			if c.sources == nil {
				c.sources = map[limit.Source]int{}
			}
			c.sources[d.Source]++
		})
	}
}

// drained is a Memory over a gate, both on one bucket whose refusal has just run
// out, in a bubble with a fake clock.
func drained(t *testing.T, a limit.Bucket) (*front.Memory, *gate) {
	t.Helper()
	g := &gate{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{}), open: make(chan error, 100)}
	memory := &front.Memory{Next: g, Store: front.NewMemoryStore()}
	for range a.Rule.Capacity {
		g.open <- nil
		require.Equal(t, int64(1), one(t, memory, a).Granted)
	}
	require.Equal(t, limit.SourceRemembered, one(t, memory, a).Source)
	time.Sleep(one(t, memory, a).First.RetryAfter) // in the bubble's time
	g.calls.Store(0)
	return memory, g
}

func TestMemorySingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 10)
		memory, g := drained(t, a)
		var c crowd
		c.add(t.Context(), memory, 50, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load(), "one asks, the others wait")
		time.Sleep(time.Millisecond)
		g.open <- nil
		c.group.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		require.Equal(t, int64(1), c.granted)
		require.Equal(t, map[limit.Source]int{limit.SourceLocal: 1, limit.SourceRemembered: 49}, c.sources)
	})
}

// TestMemoryWaitsOnce: an answer that comes later than it holds is one for those
// who came while it held; the others ask for themselves.
func TestMemoryWaitsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 100)
		memory, g := drained(t, a)
		var early, late crowd
		early.add(t.Context(), memory, 5, requestFor(a))
		synctest.Wait()
		time.Sleep(11 * time.Millisecond)
		late.add(t.Context(), memory, 5, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		synctest.Wait()
		require.Equal(t, int64(6), g.calls.Load())
		for range 5 {
			g.open <- nil
		}
		early.group.Wait()
		late.group.Wait()
		require.Equal(t, int64(1), early.granted)
		require.Equal(t, int64(1), late.granted)
	})
}

func TestMemoryWaitsWithinItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 10)
		memory, g := drained(t, a)
		var first, others, left crowd
		first.add(t.Context(), memory, 1, requestFor(a))
		synctest.Wait()
		began := time.Now()
		hurried := requestFor(a)
		hurried.Deadline = began.Add(5 * time.Millisecond)
		others.add(t.Context(), memory, 3, hurried)
		ctx, cancel := context.WithCancel(t.Context())
		left.add(ctx, memory, 3, requestFor(a))
		synctest.Wait()
		cancel()
		left.group.Wait()
		require.Zero(t, time.Since(began))
		others.group.Wait()
		require.Equal(t, 5*time.Millisecond, time.Since(began))
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		first.group.Wait()
		for _, err := range others.errs {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		for _, err := range left.errs {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Len(t, others.errs, 3)
		require.Len(t, left.errs, 3)
	})
}

// TestMemoryHandsOver: where the one who asks fails, or leaves, another asks; one
// at a time.
func TestMemoryHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := bucketOf(t, "a", 1, 2)
		memory, g := drained(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		var leaver, others crowd
		leaver.add(ctx, memory, 1, requestFor(a))
		synctest.Wait()
		others.add(t.Context(), memory, 10, requestFor(a))
		synctest.Wait()
		cancel()
		leaver.group.Wait()
		require.Len(t, leaver.errs, 1)
		for asked := int64(2); asked <= 4; asked++ {
			synctest.Wait()
			require.Equal(t, asked, g.calls.Load())
			g.open <- errDown
		}
		synctest.Wait()
		g.open <- nil // it finds the bucket empty: the leaver's token is lost
		others.group.Wait()
		require.Equal(t, int64(5), g.calls.Load())
		require.Len(t, others.errs, 3)
		require.Equal(t, int64(7), others.refused)

		time.Sleep(500 * time.Millisecond)
		var alone crowd
		alone.add(t.Context(), memory, 1, requestFor(a))
		g.open <- errDown
		alone.group.Wait()
		alone.add(t.Context(), memory, 1, requestFor(a))
		g.open <- nil
		alone.group.Wait()
		require.Len(t, alone.errs, 1, "with nobody there the next one asks")
	})
}
