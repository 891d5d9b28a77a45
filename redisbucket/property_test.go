package redisbucket

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// tally counts tokens over many callers.
type tally struct {
	granted atomic.Int64 // to callers
	unsure  atomic.Int64 // of calls that failed after they may have been sent
}

// TestNeverMoreThanThereIs asks from many sides, with callers that leave, replies
// that come late and connections that are reset: what Redis has given is what
// callers were granted and no more than what those have lost who left.
func TestNeverMoreThanThereIs(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]bool{"callers leave": false, "and connections are cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := throughProxy(t, Options{Breaker: Breaker{Off: true}})
			tallies := make([]tally, len(capacities()))
			var wait sync.WaitGroup
			stop := make(chan struct{})
			for i := range 40 {
				wait.Go(func() { p.askAtRandom(t, uint64(i), tallies, stop) })
			}
			random := rand.New(rand.NewPCG(11, 12))
			for range 40 {
				p.proxy.Set(t, servertest.Fault{ReplyDelay: time.Duration(random.IntN(8)) * time.Millisecond})
				time.Sleep(25 * time.Millisecond)
				if faults && random.IntN(4) == 0 {
					p.proxy.CutAll()
				}
			}
			close(stop)
			wait.Wait()
			p.proxy.Set(t, servertest.Fault{})
			p.awaitSettled(t)
			for i := range tallies {
				look := askAt(t, i)
				look.Count = 0
				d, err := New(p.client, "").Take(t.Context(), look)
				require.NoError(t, err)
				taken := capacities()[i] - d.First.Remaining
				granted, unsure := tallies[i].granted.Load(), tallies[i].unsure.Load()
				t.Logf("%d taken: %d granted, up to %d lost", taken, granted, unsure)
				require.LessOrEqual(t, granted, taken)
				require.LessOrEqual(t, taken, granted+unsure)
				require.Positive(t, granted)
			}
		})
	}
}

// awaitSettled waits until no call is under way, and lanes are there.
func (p *proxied) awaitSettled(t *testing.T) {
	t.Helper()
	p.await(t, func(s *senders) bool { return s.busy == 0 && s.waiting == 0 })
	p.awaitLanes(t)
}

// capacities are those of the tenants: one runs dry.
func capacities() []int64 { return []int64{500, 100_000, 200_000} }

func askAt(t *testing.T, tenant int) limit.Request {
	t.Helper()
	req := ask(rule(t, capacities()[tenant], 0.001))
	req.Buckets[0].Key.Tenant = "t" + strconv.Itoa(tenant)
	return req
}

// askAtRandom asks for one tenant after another until stop, for one unit or some,
// and leaves at times.
func (p *proxied) askAtRandom(t *testing.T, seed uint64, tallies []tally, stop chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 13))
	for {
		select {
		case <-stop:
			return
		default:
		}
		tenant := random.IntN(len(tallies))
		req := askAt(t, tenant)
		req.Cost, req.Count = 1+random.Int64N(2), 1
		if random.IntN(10) == 0 {
			req.Count = random.Int64N(4)
		}
		if random.IntN(4) == 0 {
			req.Deadline = time.Now().Add(time.Duration(1+random.IntN(15)) * time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if random.IntN(4) == 0 {
			time.AfterFunc(time.Duration(random.IntN(10_000))*time.Microsecond, cancel)
		}
		d, err := p.Take(ctx, req)
		cancel()
		tallies[tenant].granted.Add(d.Granted * req.Cost)
		if reason := Reason(err); reason != "" && reason != "wait" {
			tallies[tenant].unsure.Add(req.Count * req.Cost)
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
	}
}
