package background

import (
	"testing"
	"time"
)

// TestEvery holds that calls are made again and again, none after the stop, and that
// the stop waits for the one that is under way.
func TestEvery(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}), make(chan struct{})
	var stopped bool // a call after the stop races with it, which is told, too
	stop := Every(time.Millisecond, func() {
		if stopped {
			t.Error("called after the stop")
		}
		begun <- struct{}{}
		<-end
	})
	for range 3 {
		<-begun
		end <- struct{}{}
	}
	<-begun
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		stop()
		stopped = true
	}()
	select {
	case <-returned:
		t.Error("stopped while a call is under way")
	default:
	}
	close(end)
	for {
		select {
		case <-begun: // the ticker and the stop may have come at the same time
		case <-returned:
			stop()
			return
		}
	}
}
