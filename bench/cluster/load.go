package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// workersPerInstance is how many requests an instance decides at once, at most.
	workersPerInstance = 64
	// queueLength is how many requests may wait for a worker of an instance.
	queueLength = 4096
	// tick is how often requests that are due are handed out.
	tick = 100 * time.Microsecond
)

// load asks for decisions at fixed times, whatever the answers take: a request
// that waits for a worker has waited, and its time counts from when it was due.
type load struct {
	traffic   *traffic
	perSecond float64
	length    time.Duration
	accounts  []*account
	marks     []mark // in the order of their times

	began   time.Time
	queues  []chan int64
	decided atomic.Int64
}

// mark is something to be done once at a time of the load, beside it.
type mark struct {
	at time.Duration
	do func()
}

// sample is what one request took, in µs.
type sample struct {
	sinceDue uint32 // from when it was due
	deciding uint32 // from when it was asked
}

// outcome is what came of a load.
type outcome struct {
	samples  []sample
	sources  [limit.Sources]int64
	errors   int64
	dropped  int64 // due, but never asked: the queues were full
	elapsed  time.Duration
	accounts []*account
}

// run offers the load to all instances.
func (l *load) run(instances []*instance) *outcome {
	l.accounts = newAccounts(l.traffic, l.length)
	l.queues = make([]chan int64, len(instances))
	for i := range l.queues {
		l.queues[i] = make(chan int64, queueLength)
	}
	out := &outcome{accounts: l.accounts}
	var wait sync.WaitGroup
	var merge sync.Mutex
	l.began = time.Now()
	for i, asked := range instances {
		for range workersPerInstance {
			wait.Go(func() {
				w := &worker{load: l, limiter: asked.limiter}
				w.work(l.queues[i])
				merge.Lock()
				defer merge.Unlock()
				out.merge(&w.outcome)
			})
		}
	}
	out.dropped = l.offer()
	wait.Wait()
	out.elapsed = time.Since(l.began)
	return out
}

// offer hands out what is due until the end, and returns how many were too many.
func (l *load) offer() (dropped int64) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		preciseThread()
		next, marks := int64(0), l.marks
		for elapsed := time.Duration(0); elapsed < l.length; elapsed = time.Since(l.began) {
			if len(marks) > 0 && elapsed > marks[0].at {
				go marks[0].do()
				marks = marks[1:]
			}
			for due := int64(elapsed.Seconds() * l.perSecond); next < due; next++ {
				select {
				case l.queues[l.traffic.instances[next%orderLength]] <- next:
				default:
					dropped++
				}
			}
			sleep(tick)
		}
		for _, missed := range marks { // no moment was left for them
			go missed.do()
		}
	}()
	<-done
	for _, queue := range l.queues {
		close(queue)
	}
	return dropped
}

// due is when a request is due.
func (l *load) due(number int64) time.Time {
	return l.began.Add(time.Duration(float64(number) / l.perSecond * float64(time.Second)))
}

// worker asks one instance, one request after another.
type worker struct {
	outcome
	load    *load
	limiter limit.Limiter
}

func (w *worker) work(queue <-chan int64) {
	l := w.load
	for number := range queue {
		tenant := int(l.traffic.order[number%orderLength])
		request := limit.Request{Buckets: l.traffic.buckets[tenant], Cost: 1, Count: 1}
		asked := time.Now()
		decision, err := w.limiter.Take(context.Background(), request)
		answered := time.Now()
		l.decided.Add(1)
		if err != nil {
			w.errors++
			continue
		}
		w.sources[decision.Source]++
		w.samples = append(w.samples, sample{micros(answered.Sub(l.due(number))), micros(answered.Sub(asked))})
		if tenant < len(l.accounts) {
			l.accounts[tenant].note(asked.Sub(l.began), answered.Sub(l.began), &decision)
		}
	}
}

func micros(d time.Duration) uint32 { return uint32(max(0, d.Microseconds())) }

func (o *outcome) merge(other *outcome) {
	o.samples = append(o.samples, other.samples...)
	o.errors += other.errors
	for source, count := range other.sources {
		o.sources[source] += count
	}
}

// perSecond is how many decisions a second there were.
func (o *outcome) perSecond() float64 { return float64(len(o.samples)) / o.elapsed.Seconds() }

// share is the part of all decisions that came from a source.
func (o *outcome) share(source limit.Source) float64 {
	return float64(o.sources[source]) / max(1, float64(len(o.samples)))
}
