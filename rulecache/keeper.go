package rulecache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const (
	// storeTimeout bounds one read or write of the stored snapshot.
	storeTimeout = 5 * time.Second
	// lastStoreTimeout bounds the write of what is pending when a Source stops.
	lastStoreTimeout = 2 * time.Second
)

// keeper writes the snapshots of a Source to its store, one at a time and not
// too often. Writes run beside the poller, which a slow store must not hold up.
// Where gateways share a store, the first one writes, and the others see so.
type keeper struct {
	// every is the least time between two writes.
	every time.Duration
	// spread is over which time gateways spread their writes.
	spread time.Duration

	hash    string // of what is stored
	damaged bool   // what is stored, which looks whole to one who writes
	pending bool   // what is in force differs from what is stored
	soonest time.Time
	start   time.Time
	writing chan error // of the write under way; nil where there is none
	written string     // hash of the snapshot that is being written
}

// changed notes the snapshot in force. Chance, of 0 to 1, says when to write it.
func (k *keeper) changed(s *Snapshot, now time.Time, chance float64) {
	k.pending = s.Hash() != k.hash
	k.soonest = now.Add(time.Duration(chance * float64(k.spread)))
}

// due returns when to write, and whether there is anything to write.
func (k *keeper) due() (time.Time, bool) {
	due := k.start.Add(k.every)
	if due.Before(k.soonest) {
		due = k.soonest
	}
	return due, k.pending && k.writing == nil
}

// write starts to write s.
func (k *keeper) write(store Store, s *Snapshot, now time.Time) {
	k.start, k.pending, k.written = now, false, s.Hash()
	writing := make(chan error, 1)
	k.writing = writing
	look := !k.damaged
	go func() {
		if look && stored(store, s, now) {
			writing <- nil
			return
		}
		writing <- save(store, s)
	}()
}

// ended notes the end of the write under way.
func (k *keeper) ended(err error, inForce *Snapshot) {
	k.writing = nil
	if err == nil {
		k.hash, k.damaged = k.written, false
	}
	k.pending = inForce.Hash() != k.hash
}

// stored reports whether another gateway has stored the same as s, or what it has
// read later.
func stored(store Store, s *Snapshot, now time.Time) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	text, err := store.Load(ctx)
	return err == nil && outdates(text, s, now)
}

func save(store Store, s *Snapshot) error {
	text, err := s.encode()
	if err != nil {
		return fmt.Errorf("encoding the rules: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := store.Save(ctx, text); err != nil {
		return fmt.Errorf("writing the stored rules: %w", err)
	}
	return nil
}

// restore reads the stored snapshot; nil where there is none.
func restore(ctx context.Context, settings Settings, now time.Time) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	text, err := settings.Store.Load(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the stored rules: %w", err)
	}
	snapshot, err := decode(text, settings.MaxRules)
	if err != nil {
		return nil, fmt.Errorf("the stored rules are damaged: %w", err)
	}
	if snapshot.loadedAt.After(now) {
		snapshot.loadedAt = now // by another clock: their age is not known
	}
	return snapshot, nil
}

// storedRead is a read of the store, which runs beside the first load.
type storedRead struct {
	done chan struct{}
	// Of what is stored, set when done is closed.
	hash    string
	damaged bool
}

// restore begins to read what is stored, where no rules are known yet.
func (p *poller) restore(ctx context.Context) {
	p.stored = nil
	settings := p.source.settings()
	if settings.Store == nil || p.source.Snapshot() != nil {
		return
	}
	stored := &storedRead{done: make(chan struct{})}
	p.stored = stored
	go func() {
		defer close(stored.done)
		snapshot, err := restore(ctx, settings, p.timing.now())
		stored.damaged = err != nil
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.observe(Event{Kind: EventStoredUnusable, Err: err})
		case snapshot != nil:
			stored.hash = snapshot.hash
			if p.source.publishFirst(snapshot) {
				p.observe(Event{Kind: EventStoredUsed})
			}
		}
	}()
}

// awaitStored lets a read of the store end, for as long as that is not too long.
func (p *poller) awaitStored(most time.Duration) {
	if p.stored == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.stored.done:
	case <-timer.C:
	}
	select {
	case <-p.stored.done:
		p.keeper.hash, p.keeper.damaged, p.stored = p.stored.hash, p.stored.damaged, nil
	default:
	}
}

// keep writes the snapshot in force where that is due, and else returns when it
// will be; zero where there is nothing to write.
func (p *poller) keep(now time.Time) time.Time {
	due, pending := p.keeper.due()
	store := p.source.settings().Store
	switch {
	case !pending || store == nil:
		return time.Time{}
	case due.After(now):
		return due
	}
	p.keeper.write(store, p.source.Snapshot(), now)
	return time.Time{}
}

func (p *poller) wrote(err error) {
	p.keeper.ended(err, p.source.Snapshot())
	p.unkept.Store(p.keeper.pending)
	if err != nil {
		p.observe(Event{Kind: EventStoreFailed, Err: err})
	}
}

// Keep writes the rules in force to the store, if they are not there yet and
// however short ago the last ones were written, and waits for that until ctx has
// ended. It is for one whose store may not be there for as long as the Source.
func (s *Source) Keep(ctx context.Context) {
	ended := s.work.Ended()
	if !s.poller.unkept.Load() {
		return
	}
	kept := make(chan struct{})
	select {
	case s.poller.keeping <- kept:
	case <-ended:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-kept:
	case <-ctx.Done():
	}
}

// flush writes what is pending, for as long as that is not too long.
func (p *poller) flush() {
	p.awaitStored(lastStoreTimeout)
	timer := time.NewTimer(lastStoreTimeout)
	defer timer.Stop()
	for {
		store := p.source.settings().Store
		if _, pending := p.keeper.due(); pending && store != nil {
			p.keeper.write(store, p.source.Snapshot(), p.timing.now())
		}
		if p.keeper.writing == nil {
			return
		}
		select {
		case err := <-p.keeper.writing:
			p.wrote(err)
			if err != nil {
				return
			}
		case <-timer.C:
			return
		}
	}
}
