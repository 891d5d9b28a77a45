package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/lua"
)

// The times of a Heartbeat, the same in every process.
const (
	// HeartbeatInterval is the time between two heartbeats, give or take a tenth.
	HeartbeatInterval = time.Second
	// HeartbeatExpiry is after how long without a heartbeat a process counts as gone.
	HeartbeatExpiry = 5 * time.Second
	// HeartbeatHold is how long a lower count must hold before it is believed.
	HeartbeatHold = 2 * HeartbeatExpiry

	heartbeatTimeout = 500 * time.Millisecond
	disagreeAfter    = time.Minute
)

// rhythm is the times of a Heartbeat. Tests have shorter ones.
type rhythm struct{ interval, expiry, hold, disagree time.Duration }

func usualRhythm() rhythm {
	return rhythm{HeartbeatInterval, HeartbeatExpiry, HeartbeatHold, disagreeAfter}
}

// Heartbeat makes this process known to the others that use one Redis with one
// key prefix, and counts those that live. All of it goes by Redis' clock. It
// outlives configurations, so that a reload counts nobody twice and forgets no
// number, and keeps neither a logger nor a caller's context beyond a stop. It is
// safe for concurrent use. Make one with New.
type Heartbeat struct {
	id     string
	script lua.Script
	keys   []string
	rhythm rhythm
	clock  func() time.Time

	inForce atomic.Int64 // of count, for requests

	work *background.Work[user]
	wake chan struct{}
	past []any // what this process may be in Redis; the goroutine's

	mu       sync.Mutex // held while observers are told, so that none is after its stop
	count    headcount
	fleet    Status
	alone    time.Time // when the row of heartbeats without an answer began
	lost     bool      // that was told
	disagree disagreement
}

// Redis runs a script, all of whose keys are in one slot, within ctx's deadline.
type Redis interface {
	Eval(ctx context.Context, script lua.Script, keys []string, args ...any) (any, error)
}

// user is one Start that was not stopped yet.
type user struct {
	redis   Redis
	options Options
}

// Options are one configuration's part of a Heartbeat.
type Options struct {
	// Until is the number of instances that counts until they are known, as if it
	// had been counted: a higher count is believed at once, a lower one after
	// HeartbeatHold. Default: 1.
	Until int64

	// Rules tells the hash of the rules in force, of digits and letters, which the
	// others are told; empty where there are none. Default: none.
	Rules func() string

	// Reason returns one word for why Redis has not answered, for Status.LastReason.
	// Default: "other".
	Reason func(error) string

	// Observe is told of events one after another, from another goroutine. It must
	// neither block for long nor call the Heartbeat. Default: nobody is told.
	Observe func(Event)
}

// New returns a Heartbeat for the keys that begin with prefix, without
// asking the network and without a goroutine.
func New(prefix string) *Heartbeat { return newHeartbeat(prefix, usualRhythm(), time.Now) }

func newHeartbeat(prefix string, r rhythm, clock func() time.Time) *Heartbeat {
	// No tenant has a name with a tilde, so that no bucket is in these keys.
	seen := prefix + ":{~instances}"
	id := rand.Text()
	h := &Heartbeat{
		id: id, script: lua.Heartbeat(), keys: []string{seen, seen + ":rules"}, rhythm: r, clock: clock, wake: make(chan struct{}, 1),
		fleet: Status{ID: id},
	}
	h.work = background.New(user{}, h.run)
	return h
}

// Start keeps the heartbeat through redis, which must have been started, until
// stop is called, and for as long as anyone else has started it. Of several, the
// one that started last says how. Stop must come before that of the client; where
// it is the last, this process leaves, for which stop waits at most a second.
func (h *Heartbeat) Start(redis Redis, o Options) (stop func()) {
	running := h.work.Used()
	release := h.work.Start(user{redis, o})
	if running {
		h.beatNow()
	}
	return sync.OnceFunc(func() {
		release()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.work.Used() {
			h.beatNow() // through a client that is still there
		}
	})
}

// Instances returns the number that limits are divided by, until where nothing is
// known yet.
func (h *Heartbeat) Instances(until int64) int64 {
	if known := h.inForce.Load(); known > 0 {
		return known
	}
	return max(1, until)
}

// Status returns what is known now.
func (h *Heartbeat) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fleetNow()
}

// Destruct has nothing to close: the last stop has left. Instances still answers.
func (h *Heartbeat) Destruct() error { return nil }

func (h *Heartbeat) fleetNow() Status {
	fleet := h.fleet
	fleet.Rules = slices.Clone(fleet.Rules)
	if !fleet.Answered.IsZero() {
		fleet.Age = h.clock().Sub(fleet.Answered)
	}
	return fleet
}

// rules returns the hash of the configuration's rules.
func (u user) rules() string {
	if u.options.Rules != nil {
		if hash := u.options.Rules(); hash != "" {
			return hash
		}
	}
	return NoRules
}

// reason returns the word for an error.
func (u user) reason(err error) string {
	switch {
	case errors.Is(err, errReply):
		return "reply"
	case u.options.Reason == nil:
		return "other"
	default:
		return u.options.Reason(err)
	}
}

func (u user) tell(event Event) {
	if u.options.Observe != nil {
		u.options.Observe(event)
	}
}
