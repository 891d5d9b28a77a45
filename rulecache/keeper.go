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
type keeper struct {
	// every is the least time between two writes.
	every time.Duration

	hash    string // of what is stored
	pending bool   // what is in force differs from what is stored
	start   time.Time
	writing chan error // of the write under way; nil where there is none
	written string     // hash of the snapshot that is being written
}

// changed notes the snapshot in force.
func (k *keeper) changed(s *Snapshot) { k.pending = s.Hash() != k.hash }

// due returns when to write, and whether there is anything to write.
func (k *keeper) due() (time.Time, bool) {
	return k.start.Add(k.every), k.pending && k.writing == nil
}

// write starts to write s.
func (k *keeper) write(store Store, s *Snapshot, now time.Time) {
	k.start, k.pending, k.written = now, false, s.Hash()
	writing := make(chan error, 1)
	k.writing = writing
	go func() { writing <- save(store, s) }()
}

// ended notes the end of the write under way.
func (k *keeper) ended(err error, inForce *Snapshot) {
	k.writing = nil
	if err == nil {
		k.hash = k.written
	}
	k.pending = inForce.Hash() != k.hash
}

func save(store Store, s *Snapshot) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	text, err := s.encode()
	if err != nil {
		return fmt.Errorf("encoding the rules: %w", err)
	}
	if err := store.Save(ctx, text); err != nil {
		return fmt.Errorf("writing the stored rules: %w", err)
	}
	return nil
}

// restore reads the stored snapshot; nil where there is none.
func restore(ctx context.Context, settings Settings) (*Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	text, err := settings.Store.Load(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(text) == 0:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the stored rules: %w", err)
	}
	snapshot, err := decode(text, settings.MaxRules)
	if err != nil {
		return nil, fmt.Errorf("reading the stored rules: %w", err)
	}
	return snapshot, nil
}
