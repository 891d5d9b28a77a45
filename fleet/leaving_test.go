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
// before it still leaves, through a Redis that does not answer, keeps no heartbeat,
// and that nobody leaves through one that has ended.
func TestGoneBeforeItsTurn(t *testing.T) {
	t.Parallel()
	h := newHeartbeat("rl", rhythm{time.Hour, time.Hour, time.Hour, time.Hour}, time.Now)
	let := make(chan struct{})
	var stops sync.WaitGroup
	var asked []chan struct{}
	for i := range 3 {
		redis := deaf{make(chan struct{}, 8), let}
		asked = append(asked, redis.asked)
		stop := h.Start(redis, Options{})
		if i == 0 {
			<-redis.asked
		}
		halted := h.work.Halted()
		stops.Go(stop)
		<-halted
	}
	close(let)
	stops.Wait()
	require.Empty(t, asked[0])
	require.Empty(t, asked[1])
	require.Len(t, asked[2], 3, "each leaves through the newest, whose stop waits for it")
	require.EqualValues(t, 3, h.Instances(3))
}
