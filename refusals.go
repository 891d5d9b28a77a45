package ratelimit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// refusals is the log of refusals, sampled: the first of a bucket in a minute is
// a line of its own, the others of that minute are one count. Under attack a log
// line for each refusal would cost more than the attack. Lines are written by a
// goroutine of their own, so that no request waits for the log. What has no room,
// among the buckets or among the lines, is counted together.
type refusals struct {
	logger *zap.Logger
	seed   maphash.Seed
	shards [refusalShards]refusalShard
	lines  chan refusalLine
	ended  atomic.Bool // nobody takes lines any more
}

const (
	// refusalShards keep floods of different buckets from meeting at one lock.
	refusalShards = 16
	// shardBuckets bounds the memory.
	shardBuckets = 512
	// refusalLines is how many lines may wait for the log.
	refusalLines = 1024

	// The messages of the lines.
	refusedFirst  = "rate limit exceeded"
	refusedAgain  = "rate limit exceeded again"
	refusedOthers = "rate limit exceeded by others"
)

type refusalShard struct {
	mu      sync.Mutex
	buckets map[limit.Key]*refusalCount
	others  int64 // refusals that are counted for no bucket
}

// refusalCount is what a bucket has refused in a minute.
type refusalCount struct {
	since time.Time
	first refusal
	more  int64
}

// refusalLine is one that waits for the log.
type refusalLine struct {
	message string
	fields  []zap.Field
}

// refusal is what the log says about one.
type refusal struct {
	zone     string
	tenant   string // blank unless log_key asks for it
	remoteIP string // of whom the first refusal of the minute met
	clientIP string
	source   limit.Source
	wait     time.Duration
}

func newRefusals(logger *zap.Logger) *refusals {
	return &refusals{logger: logger, seed: maphash.MakeSeed(), lines: make(chan refusalLine, refusalLines)}
}

// start writes what waits, and the counts of minutes that are over, until stop is
// called, which writes all counts.
func (r *refusals) start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case line := <-r.lines:
				r.logger.Info(line.message, line.fields...)
			case now := <-ticker.C:
				r.flush(now, false)
			case <-done:
				r.ended.Store(true)
				r.drain()
				r.flush(time.Now(), true)
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// drain writes the lines that wait.
func (r *refusals) drain() {
	for {
		select {
		case line := <-r.lines:
			r.logger.Info(line.message, line.fields...)
		default:
			return
		}
	}
}

// note records a refusal of the bucket. It does not wait.
func (r *refusals) note(key limit.Key, said refusal) {
	r.noteAt(time.Now(), key, said)
}

func (r *refusals) noteAt(now time.Time, key limit.Key, said refusal) {
	shard := &r.shards[maphash.Comparable(r.seed, key)%refusalShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	known := shard.buckets[key]
	switch {
	case known != nil && now.Sub(known.since) < time.Minute:
		known.more++
		return
	case known != nil:
		if line, counted := known.again(); counted && !r.queue(line) {
			shard.others += known.more
		}
		*known = refusalCount{}
	case len(shard.buckets) >= shardBuckets:
		shard.others++
		return
	default:
		known = shard.add(key)
	}
	said.tenant, said.clientIP = strings.Clone(said.tenant), strings.Clone(said.clientIP)
	if !r.queue(refusalLine{refusedFirst, said.line()}) {
		shard.others++
	}
	known.since, known.first = now, said
}

// add makes room for a bucket. Its names may be parts of a request's buffer, so
// they are copied.
func (s *refusalShard) add(key limit.Key) *refusalCount {
	if s.buckets == nil {
		s.buckets = make(map[limit.Key]*refusalCount)
	}
	key.Tenant = strings.Clone(key.Tenant)
	known := new(refusalCount)
	s.buckets[key] = known
	return known
}

// queue hands a line to the log, and reports whether there was room. Requests that
// outlive their config write for themselves.
func (r *refusals) queue(line refusalLine) bool {
	if r.ended.Load() {
		r.logger.Info(line.message, line.fields...)
		return true
	}
	select {
	case r.lines <- line:
		return true
	default:
		return false
	}
}

// write logs one refusal at once.
func (r *refusals) write(said refusal) {
	r.logger.Info(refusedFirst, said.line()...)
}

// flush writes the counts of the minutes that are over at now, or of all, and
// forgets their buckets. It waits for the log with no lock held.
func (r *refusals) flush(now time.Time, all bool) {
	others := int64(0)
	for i := range r.shards {
		lines, more := r.shards[i].over(now, all)
		others += more
		for _, line := range lines {
			r.logger.Info(line.message, line.fields...)
		}
	}
	if others > 0 {
		r.logger.Info(refusedOthers, zap.Int64("refused", others))
	}
}

// over takes out what is over.
func (s *refusalShard) over(now time.Time, all bool) (lines []refusalLine, others int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, count := range s.buckets {
		if !all && now.Sub(count.since) < time.Minute {
			continue
		}
		if line, counted := count.again(); counted {
			lines = append(lines, line)
		}
		delete(s.buckets, key)
	}
	others, s.others = s.others, 0
	return lines, others
}

// again is the line about those after the first, if there were any.
func (c *refusalCount) again() (line refusalLine, counted bool) {
	if c.more == 0 {
		return line, false
	}
	return refusalLine{refusedAgain, append(c.first.fields(), zap.Int64("refused", c.more), zap.Time("since", c.since))}, true
}

// line is what the line about one refusal tells.
func (s *refusal) line() []zap.Field {
	fields := append(s.fields(), zap.String("remote_ip", s.remoteIP), zap.String("client_ip", s.clientIP))
	if s.wait != limit.Never {
		fields = append(fields, zap.Duration("wait", s.wait))
	}
	return fields
}

func (s *refusal) fields() []zap.Field {
	fields := []zap.Field{zap.String("zone", s.zone), zap.Stringer("source", s.source)}
	if s.tenant != "" {
		fields = append(fields, zap.String("key", s.tenant))
	}
	return fields
}
