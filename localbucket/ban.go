package localbucket

import (
	"math"
	"time"

	"github.com/caddygate/ratelimit/internal/bounded"
	"github.com/caddygate/ratelimit/limit"
)

// ban is what is known of one bucket's bans: until when one holds, and where
// settlements begin it, a second balance from which only they take. The arithmetic is
// that of the Redis script.
type ban struct {
	until  int64 // in ms of the store's clock
	left   level
	taken  bool // something was taken from the second balance; else it is full
	fullAt int64
}

// never is a time before all others.
const never = math.MinInt64

// found returns the ban that is stored, or none.
func found(stored *ban) ban {
	if stored == nil {
		return ban{until: never, fullAt: never}
	}
	return *stored
}

// FullAt returns until when the ban is worth its memory.
func (b ban) FullAt() int64 { return b.fullAt }

// soon is the wait of a refusal that is due to requests under way.
const soon = time.Second

// begin begins a ban, unless one holds, and returns how long it is then.
func (b *ban) begin(length time.Duration, now int64) time.Duration {
	if b.until > now {
		return 0
	}
	b.until = now + length.Milliseconds()
	return length
}

// rest is how long a ban holds yet.
func (b *ban) rest(now int64) time.Duration {
	if b.until <= now {
		return 0
	}
	return time.Duration(b.until-now) * time.Millisecond
}

// put stores a ban, which is worth its memory until it and the second balance are over.
func (s *Store) put(held *heldBans, name fingerprint, b ban, now int64) {
	if b.fullAt = b.until; b.taken {
		b.fullAt = max(b.until, b.left.fullAt)
	}
	held.Put(name, b, now)
	for last := s.lastBan.Load(); b.until > last && !s.lastBan.CompareAndSwap(last, b.until); last = s.lastBan.Load() {
	}
}

type (
	heldBans = bounded.Held[ban]
)

// mayBan reports whether anyone may be banned, or may be from now on.
func (l *Limiter) mayBan(req *limit.Request) bool {
	if last := l.store.lastBan.Load(); last != never && last > floorTo(l.elapsed(), time.Millisecond) {
		return true
	}
	for i := range req.Buckets {
		if req.Buckets[i].Ban > 0 {
			return true
		}
	}
	return false
}

// KeepOut notes a ban that another has begun, for so long from now on. It holds
// whatever this limiter is asked about the bucket.
func (l *Limiter) KeepOut(key limit.Key, rest time.Duration) {
	name := l.store.fingerprint(key)
	held := l.store.bans.Lock(name)
	defer held.Unlock()
	now := floorTo(l.elapsed(), time.Millisecond)
	b := found(held.Get(name))
	b.until = now + rest.Milliseconds()
	l.store.put(&held, name, b, now)
}

// takeUnlessBanned decides where somebody may be banned: all bans are looked at, and
// then the buckets, while nobody else begins or ends one.
func (l *Limiter) takeUnlessBanned(req *limit.Request) limit.Decision {
	keys := make([]fingerprint, len(req.Buckets))
	for i := range keys {
		keys[i] = l.store.fingerprint(req.Buckets[i].Key)
	}
	held := l.store.bans.Lock(keys...)
	defer held.Unlock()
	now := floorTo(l.elapsed(), time.Millisecond)
	asked, out := *req, false
	for i := range keys {
		known := held.Get(keys[i])
		out = out || known != nil && known.until > now
	}
	if out {
		asked.Count = 0
	}
	decision := l.takeAny(&asked)
	if out {
		decision.Granted = 0
	}
	for i := range keys {
		state, b := decision.At(i), found(held.Get(keys[i]))
		refused := decision.Granted == 0 && !out && req.Count > 0 && state.RetryAfter > 0
		if refused && b.refuse(&req.Buckets[i], req.CostOf(i), &state, now) {
			l.store.put(&held, keys[i], b, now)
		}
		b.tell(&state, now)
		decision.Set(i, state)
	}
	return decision
}

// takeAny decides without a look at bans.
func (l *Limiter) takeAny(req *limit.Request) limit.Decision {
	if len(req.Buckets) == 1 {
		return l.takeSole(req)
	}
	return l.takeAll(req)
}

// refuse notes that the bucket itself has refused, and reports whether that began a
// ban. A refusal that is due to requests under way is over soon.
func (b *ban) refuse(bucket *limit.Bucket, cost int64, state *limit.State, now int64) (begun bool) {
	switch {
	case bucket.Ban <= 0:
	case !bucket.Settles:
		b.begin(bucket.Ban, now)
		return true
	case b.balance(&bucket.Rule, now) >= float64(cost)-tokenSlack:
		state.RetryAfter = min(state.RetryAfter, soon)
	}
	return false
}

// tell adds the ban to a bucket's state.
func (b *ban) tell(state *limit.State, now int64) {
	if state.Banned = b.rest(now); state.Banned > 0 {
		state.RetryAfter = max(state.RetryAfter, state.Banned)
	}
}

// balance is what is left of the second balance. One that nothing was taken from is
// full.
func (b *ban) balance(rule *limit.Rule, now int64) float64 {
	if !b.taken {
		return float64(rule.Capacity)
	}
	return b.left.under(rule, now).balance(rule, now)
}

// settleBan takes what a unit cost from the second balance, and begins a ban where that
// leaves too little for another. It returns how long the ban is then.
func (l *Limiter) settleBan(s *limit.Settlement) (begun time.Duration) {
	if s.Bucket.Ban <= 0 || !s.Bucket.Settles || s.Spent <= 0 {
		return 0
	}
	key := l.store.fingerprint(s.Bucket.Key)
	held := l.store.bans.Lock(key)
	defer held.Unlock()
	now := floorTo(l.elapsed(), time.Millisecond)
	b := found(held.Get(key))
	rule := &s.Bucket.Rule
	b.left.tokens = max(-float64(rule.Capacity), b.balance(rule, now)-float64(s.Spent))
	b.left.stamp, b.taken = now, true
	b.left.fullAt = now + b.left.wait(rule.Capacity, b.left.tokens, rule, now)
	if b.left.tokens < float64(max(1, s.Bucket.Cost))-tokenSlack {
		begun = b.begin(s.Bucket.Ban, now)
	}
	l.store.put(&held, key, b, now)
	return begun
}

// Interface guards
var _ bounded.Value = ban{}
