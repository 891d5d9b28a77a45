package localbucket

import (
	"github.com/caddygate/ratelimit/limit"
)

// party is a turn of any algorithm.
type party interface {
	read() (units int64)
	settle(granted int64) limit.State
}

// heldTurn is a turn with the hold on its bucket.
type heldTurn[S state[S]] struct {
	turn[S]
	held *heldState[S]
}

func (t *heldTurn[S]) read() (units int64) {
	return t.turn.read(t.held)
}

// settle finds the bucket anew, because the turns before may have moved it.
func (t *heldTurn[S]) settle(granted int64) limit.State {
	t.stored = t.held.Get(t.key)
	return t.turn.settle(t.held, granted)
}

// group is those buckets of a request that are under one algorithm, locked.
type group[S state[S]] struct {
	held heldState[S]
}

// lockGroup locks those buckets of a request that are under an algorithm.
func lockGroup[S state[S]](in *states[S], req *limit.Request, names []fingerprint, algorithm limit.Algorithm) *group[S] {
	var keys []fingerprint
	for i := range req.Buckets {
		if algorithmOf(&req.Buckets[i]) == algorithm {
			keys = append(keys, names[i])
		}
	}
	if keys == nil {
		return nil
	}
	return &group[S]{held: in.Lock(keys...)}
}

func (g *group[S]) unlock() {
	if g != nil {
		g.held.Unlock()
	}
}

// turn is the turn of one of the buckets.
func (g *group[S]) turn(a ask, bucket *limit.Bucket, name fingerprint) party {
	return &heldTurn[S]{turn: newTurn[S](name, a, &bucket.Rule), held: &g.held}
}

// takeAll reads every bucket, and then takes the same from each, or nothing. The
// maps of the algorithms are locked in one order, so that no two requests wait
// for each other.
func (l *Limiter) takeAll(req *limit.Request) limit.Decision {
	names := make([]fingerprint, len(req.Buckets))
	for i := range names {
		names[i] = l.store.fingerprint(req.Buckets[i].Key)
	}
	levels := lockGroup(l.store.levels, req, names, limit.TokenBucket)
	defer levels.unlock()
	logs := lockGroup(l.store.logs, req, names, limit.SlidingWindowLog)
	defer logs.unlock()
	counters := lockGroup(l.store.counters, req, names, limit.SlidingWindowCounter)
	defer counters.unlock()

	wanted := ask{count: req.Count, elapsed: l.elapsed()}
	turns := make([]party, len(names))
	for i := range turns {
		bucket := &req.Buckets[i]
		wanted.cost = req.CostOf(i)
		switch algorithmOf(bucket) {
		case limit.SlidingWindowLog:
			turns[i] = logs.turn(wanted, bucket, names[i])
		case limit.SlidingWindowCounter:
			turns[i] = counters.turn(wanted, bucket, names[i])
		default:
			turns[i] = levels.turn(wanted, bucket, names[i])
		}
	}
	return decide(turns, req.Count)
}

// decide grants what every turn can give.
func decide(turns []party, count int64) limit.Decision {
	granted := count
	for _, t := range turns {
		granted = min(granted, t.read())
	}
	rest := make([]limit.State, len(turns)-1)
	for i := range rest {
		rest[i] = turns[i+1].settle(granted)
	}
	return limit.Decision{Granted: granted, Source: limit.SourceLocal, First: turns[0].settle(granted), Rest: rest}
}
