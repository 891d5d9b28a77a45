package background

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNewestSettings holds that of several users the one that started last says how,
// and that nothing of the last one stays.
func TestNewestSettings(t *testing.T) {
	t.Parallel()
	ran := make(chan struct{}, 2)
	w := New("idle", func(ctx context.Context, _ func()) {
		ran <- struct{}{}
		<-ctx.Done()
	})
	require.Equal(t, "idle", w.Settings())
	one := w.Start("one")
	<-ran
	two := w.Start("two")
	require.Equal(t, "two", w.Settings())
	two()
	two()
	require.Equal(t, "one", w.Settings())
	require.True(t, w.Used())
	one()
	require.False(t, w.Used())
	require.Equal(t, "idle", w.Settings())
	require.Empty(t, ran, "one run for both")
}

// TestRunsDoNotOverlap holds that a run which ends late is waited for by the next,
// under whose settings it ends.
func TestRunsDoNotOverlap(t *testing.T) {
	t.Parallel()
	var running atomic.Int64
	begun, end := make(chan struct{}, 2), make(chan struct{})
	w := New(0, func(ctx context.Context, _ func()) {
		if running.Add(1) > 1 {
			t.Error("two runs at a time")
		}
		begun <- struct{}{}
		<-ctx.Done()
		<-end
		running.Add(-1)
	})
	stop := w.Start(1)
	<-begun
	halted, stopped := w.Halted(), make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	<-halted
	require.False(t, w.Used())
	again := w.Start(2)
	require.Equal(t, 2, w.Settings())
	require.Empty(t, begun)
	close(end)
	<-stopped
	<-begun
	require.Equal(t, 2, w.Settings(), "a run that ended forgets what is its own only")
	again()
}

// TestRunAfterItsUsers holds that a run whose users have gone while it waited for the
// one before has their settings all the same, and not those of nobody.
func TestRunAfterItsUsers(t *testing.T) {
	t.Parallel()
	ran, end := make(chan int, 2), make(chan struct{})
	var w *Work[int]
	w = New(0, func(ctx context.Context, _ func()) {
		ran <- w.Settings()
		<-ctx.Done()
		<-end
	})
	var stops sync.WaitGroup
	for settings := range 2 {
		stop := w.Start(settings + 1)
		if settings == 0 {
			require.Equal(t, 1, <-ran)
		}
		halted := w.Halted()
		stops.Go(stop)
		<-halted
	}
	close(end)
	stops.Wait()
	require.Equal(t, 2, <-ran)
	require.Zero(t, w.Settings())
}

// TestAwait waits for the first attempt after a start, and lets everyone go where
// that ends, the run does, or what it was to bring came another way.
func TestAwait(t *testing.T) {
	t.Parallel()
	cases := map[string]func(w *Work[int], attempted chan struct{}, stop func()){
		"tried":   func(_ *Work[int], attempted chan struct{}, _ func()) { close(attempted) },
		"another": func(w *Work[int], _ chan struct{}, _ func()) { w.Tried() },
		"halted":  func(_ *Work[int], _ chan struct{}, stop func()) { stop() },
		"stopped": func(w *Work[int], _ chan struct{}, _ func()) { _ = w.Stop() },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempted := make(chan struct{})
			w := New(0, func(ctx context.Context, tried func()) {
				select {
				case <-attempted:
					tried()
					tried()
				case <-ctx.Done():
				}
				<-ctx.Done()
			})
			early := make(chan struct{})
			go func() {
				defer close(early)
				w.Await(context.Background(), time.Hour) // a request that comes before the Start
			}()
			stop := w.Start(1)
			require.True(t, w.Trying())
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			w.Await(gone, time.Hour)
			w.Await(t.Context(), 0)
			require.True(t, w.Trying())
			end(w, attempted, stop)
			w.Await(t.Context(), time.Hour)
			<-early
			require.False(t, w.Trying())
			stop()
		})
	}
}

// TestStopIsForGood starts nothing after Stop, and waits for nobody before a start.
func TestStopIsForGood(t *testing.T) {
	t.Parallel()
	w := New(0, func(ctx context.Context, _ func()) { <-ctx.Done() })
	<-w.Halted()
	<-w.Ended()
	stop := w.Start(1)
	require.NoError(t, w.Stop())
	stop()
	<-w.Ended()
	w.Start(2)()
	require.False(t, w.Used())
	require.Zero(t, w.Settings())
}
