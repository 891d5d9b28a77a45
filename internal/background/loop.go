package background

import (
	"context"
	"time"
)

// Go runs a function in a goroutine of its own. Stop ends the function's context and
// waits until it has returned, however long that takes; it may be called again.
func Go(run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// Every calls a function at each interval, above 0, in a goroutine of its own. Stop
// ends that and waits for a call that is under way; it may be called again.
func Every(interval time.Duration, call func()) (stop func()) {
	return Go(func(ctx context.Context) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				call()
			case <-ctx.Done():
				return
			}
		}
	})
}
