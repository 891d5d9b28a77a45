package front_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/localbucket"
)

// exhaust takes what is in hand, when a call has just brought 50.
func exhaust(t *testing.T, p *front.Prefetch, a limit.Bucket) {
	t.Helper()
	for one(t, p, a).Source == limit.SourcePrefetch {
	}
	require.Equal(t, int64(49), takeN(t, p, 49, a))
}

// warmed is a Prefetch with nothing in hand whose next call takes 50, over a gate,
// in a bubble with a fake clock.
func warmed(t *testing.T, a limit.Bucket) (*front.Prefetch, *gate, *counted) {
	t.Helper()
	next := &counted{Limiter: localbucket.New(localbucket.NewStore(), localbucket.Options{})}
	g := &gate{Limiter: next, open: make(chan error, 1000)}
	prefetch := &front.Prefetch{Next: g, Store: front.NewPrefetchStore()}
	for range 300 {
		g.open <- nil
	}
	for range 200 {
		require.Equal(t, int64(1), one(t, prefetch, a).Granted)
		time.Sleep(time.Millisecond) // in the bubble's time
	}
	exhaust(t, prefetch, a)
	for len(g.open) > 0 {
		<-g.open
	}
	require.NoError(t, prefetch.Next.Reset(t.Context(), a.Key))
	g.calls.Store(0)
	next.granted.Store(0)
	return prefetch, g, next
}

// spend takes what is in hand.
func spend(t *testing.T, p *front.Prefetch, a limit.Bucket) (n int) {
	t.Helper()
	request := requestFor(a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		if d, err := p.Take(ctx, request); err != nil || d.Source != limit.SourcePrefetch {
			return n
		}
		n++
	}
}

func TestPrefetchIsJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		var c crowd
		c.add(t.Context(), prefetch, 60, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(11), g.calls.Load(), "one call for 50, of which none is for the other 10")
		for range 11 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, int64(60), c.granted)
		require.Equal(t, int64(60), next.granted.Load())
		require.Equal(t, map[limit.Source]int{limit.SourceLocal: 60}, c.sources)
		require.Equal(t, limit.SourceLocal, func() limit.Source { g.open <- nil; return one(t, prefetch, a).Source }())
	})
}

// TestPrefetchLeavers: the token of one who leaves stays in hand, also that of the
// one who made the call, and nobody waits longer than his deadline.
func TestPrefetchLeavers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		var caller, leavers, hurried, patient crowd
		request := requestFor(a)
		request.Deadline = time.Now().Add(20 * time.Millisecond)
		caller.add(ctx, prefetch, 1, request)
		synctest.Wait()
		leavers.add(ctx, prefetch, 5, requestFor(a))
		patient.add(t.Context(), prefetch, 5, requestFor(a))
		soon := requestFor(a)
		soon.Deadline = time.Now().Add(5 * time.Millisecond)
		hurried.add(t.Context(), prefetch, 5, soon)
		synctest.Wait()
		cancel()
		leavers.group.Wait()
		began := time.Now()
		hurried.group.Wait()
		require.Equal(t, 5*time.Millisecond, time.Since(began))
		g.open <- nil
		caller.group.Wait()
		patient.group.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		require.ErrorIs(t, errors.Join(caller.errs...), context.Canceled)
		require.ErrorIs(t, errors.Join(leavers.errs...), context.Canceled)
		require.ErrorIs(t, errors.Join(hurried.errs...), context.DeadlineExceeded)
		require.Equal(t, int64(5), patient.granted)
		require.Equal(t, int64(50), next.granted.Load())
		require.Equal(t, 45, spend(t, prefetch, a))
	})
}

// TestPrefetchBringsLess: those for whom there is no token ask for themselves, as
// do all after an error.
func TestPrefetchBringsLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, next := warmed(t, a)
		require.Equal(t, int64(4997), take(t, next.Limiter, 1, 4997, a).Granted)
		var c crowd
		c.add(t.Context(), prefetch, 10, requestFor(a))
		synctest.Wait()
		require.Equal(t, int64(1), g.calls.Load())
		g.open <- nil
		synctest.Wait()
		require.Equal(t, int64(8), g.calls.Load())
		for range 7 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, int64(3), c.granted)
		require.Equal(t, int64(7), c.refused)
	})
	synctest.Test(t, func(t *testing.T) {
		a := ahead(t, 5000, 5000, 50)
		prefetch, g, _ := warmed(t, a)
		var c crowd
		c.add(t.Context(), prefetch, 10, requestFor(a))
		synctest.Wait()
		g.open <- errDown
		synctest.Wait()
		require.Equal(t, int64(10), g.calls.Load())
		for range 9 {
			g.open <- nil
		}
		c.group.Wait()
		require.Equal(t, []error{errDown}, c.errs)
		require.Equal(t, int64(9), c.granted)
	})
}

// TestPrefetchIsLate: what a call brings after a reset, a change of the rule or
// 100 ms is for those who wait, and not kept.
func TestPrefetchIsLate(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*testing.T, *front.Prefetch, *gate, limit.Bucket){
		"reset": func(t *testing.T, p *front.Prefetch, _ *gate, a limit.Bucket) {
			require.NoError(t, p.Reset(t.Context(), a.Key))
		},
		"rule": func(t *testing.T, p *front.Prefetch, g *gate, a limit.Bucket) {
			a.Rule.Capacity--
			g.open <- nil
			var c crowd
			c.add(t.Context(), p, 1, requestFor(a))
			g.open <- nil
			c.group.Wait()
		},
		"time": func(*testing.T, *front.Prefetch, *gate, limit.Bucket) { time.Sleep(100 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := ahead(t, 5000, 5000, 50)
				prefetch, g, _ := warmed(t, a)
				var c crowd
				c.add(t.Context(), prefetch, 5, requestFor(a))
				synctest.Wait()
				meanwhile(t, prefetch, g, a)
				if name != "rule" { // there the gate has opened for the call too
					g.open <- nil
				}
				c.group.Wait()
				require.Equal(t, int64(5), c.granted)
				require.Zero(t, spend(t, prefetch, a))
			})
		})
	}
}

// TestPrefetchStartsAnew: what a call brings is not kept either where requests have
// come since the reset or the change of the rule that it was late for.
func TestPrefetchStartsAnew(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*front.Prefetch, limit.Bucket){
		"reset": func(p *front.Prefetch, a limit.Bucket) {
			require.NoError(t, p.Reset(context.Background(), a.Key))
			one(t, p, a)
		},
		"rule": func(p *front.Prefetch, a limit.Bucket) {
			changed := a
			changed.Rule.Capacity--
			one(t, p, changed)
			one(t, p, a)
		},
	} {
		c := newCluster(1)
		a := ahead(t, 5000, 5000, 50)
		c.warm(t, a, 200*time.Millisecond)
		exhaust(t, c.gateways[0], a)
		c.before = func(req limit.Request) {
			c.before = nil
			require.Equal(t, int64(50), req.Count)
			meanwhile(c.gateways[0], a)
		}
		require.Equal(t, int64(1), one(t, c.gateways[0], a).Granted)
		require.Equal(t, limit.SourceLocal, one(t, c.gateways[0], a).Source, name)
	}
}
