package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

// What the service can bear: slots at once for serviceTime each, so 100 requests
// a second, and as many more waiting as it serves in half a second.
const (
	slots       = 4
	serviceTime = 40 * time.Millisecond
	queueLength = 50
)

// backend is a service that is busy for a while with each request. Who finds its
// queue full is sent away with 503.
type backend struct {
	free    chan struct{}
	waiting atomic.Int64
}

func newBackend() *backend {
	b := &backend{free: make(chan struct{}, slots)}
	for range slots {
		b.free <- struct{}{}
	}
	return b
}

// ServeHTTP waits for a slot and keeps it for the service time.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	waits := b.waiting.Add(1) <= queueLength
	if !waits {
		b.waiting.Add(-1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	select {
	case <-b.free:
		b.waiting.Add(-1)
	case <-r.Context().Done():
		b.waiting.Add(-1)
		return
	}
	time.Sleep(serviceTime)
	b.free <- struct{}{}
	w.WriteHeader(http.StatusOK)
}
