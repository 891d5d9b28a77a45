package redisbucket

import (
	"sync"
	"sync/atomic"
	"time"
)

// eventQueue bounds how many events wait for their observers.
const eventQueue = 64

// observers are those who are told of events.
type observers struct {
	events chan Event

	watch sync.Mutex // held while they are told, so that none is after its stop
	all   map[*observer]struct{}
}

type observer struct{ observe func(Event) }

// notes are what was told already and is not told again until it has changed.
type notes struct {
	clusterTold  atomic.Bool   // that a server is a node of a cluster
	sentinelTold atomic.Bool   // that a server is a sentinel
	lostTold     atomic.Uint32 // the EventKind of why nobody knows who serves; 0 where somebody does
}

func newObservers() observers {
	return observers{events: make(chan Event, eventQueue), all: make(map[*observer]struct{})}
}

// tell queues an event for the observers; one too many is dropped.
func (o *observers) tell(event Event) {
	event.At = time.Now()
	select {
	case o.events <- event:
	default:
	}
}

func (o *observers) dispatch(event Event) {
	o.watch.Lock()
	defer o.watch.Unlock()
	for one := range o.all {
		one.observe(event)
	}
}

func (o *observers) watchWith(one *observer) {
	if one.observe == nil {
		return
	}
	o.watch.Lock()
	defer o.watch.Unlock()
	o.all[one] = struct{}{}
}

func (o *observers) forget(one *observer) {
	o.watch.Lock()
	defer o.watch.Unlock()
	delete(o.all, one)
}
