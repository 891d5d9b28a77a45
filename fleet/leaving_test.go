package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/lua"
)

// deaf is a Redis that answers nothing, and no sooner than it is let.
type deaf struct {
	asked chan struct{}
	let   chan struct{}
}

func (d deaf) Eval(context.Context, lua.Script, []string, ...any) (any, error) {
	d.asked <- struct{}{}
	<-d.let
	return nil, errors.New("no answer")
}

// TestGoneBeforeItsTurn holds that a configuration which comes and goes while the one
// before it still leaves, through a Redis that does not answer, asks nothing.
func TestGoneBeforeItsTurn(t *testing.T) {
	t.Parallel()
	h := newHeartbeat("rl", rhythm{time.Hour, time.Hour, time.Hour, time.Hour}, time.Now)
	redis := deaf{make(chan struct{}, 8), make(chan struct{})}
	var stops sync.WaitGroup
	stop := h.Start(redis, Options{})
	<-redis.asked
	for range 2 {
		halted := h.work.Halted()
		stops.Go(stop)
		<-halted
		stop = h.Start(redis, Options{})
	}
	halted := h.work.Halted()
	stops.Go(stop)
	<-halted
	close(redis.let)
	stops.Wait()
	<-redis.asked // to leave, by the first
	require.Empty(t, redis.asked)
	require.EqualValues(t, 3, h.Instances(3))
}
