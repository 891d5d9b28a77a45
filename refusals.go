package ratelimit

import (
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// refusals is the log of refusals, sampled: the first of a bucket in a minute is
// a line of its own, the others of that minute are one count. Under attack a log
// line for each refusal would cost more than the attack.
type refusals struct {
	logger *zap.Logger
	seed   maphash.Seed
	slots  [refusalSlots]refusalSlot
}

// refusalSlots bounds the memory. Two buckets that fall into one slot in the
// same minute are counted as one.
const refusalSlots = 4096

type refusalSlot struct {
	mu    sync.Mutex
	since time.Time // when the minute began, zero if the slot is free
	first refusal
	more  int64
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
	return &refusals{logger: logger, seed: maphash.MakeSeed()}
}

// start writes the counts of minutes that are over, until stop is called.
func (r *refusals) start() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				r.flush(now, false)
			case <-done:
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

// note records a refusal of the bucket.
func (r *refusals) note(key limit.Key, said refusal) {
	r.noteAt(time.Now(), key, said)
}

func (r *refusals) noteAt(now time.Time, key limit.Key, said refusal) {
	slot := &r.slots[maphash.Comparable(r.seed, key)%refusalSlots]
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if !slot.since.IsZero() && now.Sub(slot.since) < time.Minute {
		slot.more++
		return
	}
	r.writeCount(slot)
	slot.since, slot.first = now, said
	r.write(said)
}

// write logs one refusal.
func (r *refusals) write(said refusal) {
	fields := append(said.fields(), zap.String("remote_ip", said.remoteIP), zap.String("client_ip", said.clientIP))
	if said.wait != limit.Never {
		fields = append(fields, zap.Duration("wait", said.wait))
	}
	r.logger.Info("rate limit exceeded", fields...)
}

// flush writes the counts of the minutes that are over at now, or of all.
func (r *refusals) flush(now time.Time, all bool) {
	for i := range r.slots {
		slot := &r.slots[i]
		slot.mu.Lock()
		if !slot.since.IsZero() && (all || now.Sub(slot.since) >= time.Minute) {
			r.writeCount(slot)
			slot.since, slot.first = time.Time{}, refusal{}
		}
		slot.mu.Unlock()
	}
}

func (r *refusals) writeCount(slot *refusalSlot) {
	if slot.more > 0 {
		r.logger.Info("rate limit exceeded again", append(slot.first.fields(), zap.Int64("refused", slot.more), zap.Time("since", slot.since))...)
	}
	slot.more = 0
}

func (s *refusal) fields() []zap.Field {
	fields := []zap.Field{zap.String("zone", s.zone), zap.Stringer("source", s.source)}
	if s.tenant != "" {
		fields = append(fields, zap.String("key", s.tenant))
	}
	return fields
}
