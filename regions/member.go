package regions

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Gateway is how one gateway makes itself known.
type Gateway struct {
	// ID names the process, at random.
	ID string
	// Region is where it is.
	Region string
	// Acked is the version that it goes by, and everything that was decided by an
	// older one has ended. 0: none.
	Acked int64
	// Valid is how long it goes by what it read last.
	Valid time.Duration
}

// Reader is the part of the store that a gateway uses. Each method ends soon
// after its context does.
type Reader interface {
	// Announce makes the gateway and its region known, and writes down the time
	// by the store's clock. It has been kept when Announce returns.
	Announce(ctx context.Context, gateway Gateway) error
	// View reads the shares of a region, all as of one moment after View began.
	// Known is the version that is known; where it is still that, only this is told.
	View(ctx context.Context, region string, known int64) (View, error)
	// Report adds demand to that of a region.
	Report(ctx context.Context, region string, demand []Demand) error
	// Leave takes the gateway back. It goes by no share any more.
	Leave(ctx context.Context, id string) error
}

// member is a gateway's side of the protocol, without its goroutine.
type member struct {
	reader Reader
	id     string
	region string
	valid  time.Duration
	drain  time.Duration // how long a decision may go on with the shares it began with
	now    func() time.Time

	force atomic.Pointer[inForce]

	// Of the one goroutine that polls.
	known   int64     // version of what is in force, 0: none
	adopted time.Time // when that came into force
	acked   int64     // version that nothing older than which is in use
	lapsed  bool      // the shares had grown too old when it was looked at last
}

// shares returns what is in force.
func (m *member) shares() *Shares { return m.force.Load().at(m.now()) }

// start puts a share in force of which nothing has to be read.
func (m *member) start(share Share) {
	only := flat(share)
	m.force.Store(&inForce{fresh: only, fallen: only})
	m.known, m.acked = 0, 0
}

// poll makes the gateway known and reads the shares. The order is what makes it
// safe: a job that does not see this gateway has committed before the shares are
// read, and the shares count from before the gateway was seen.
func (m *member) poll(ctx context.Context) (changed bool, err error) {
	began := m.now()
	if m.owes() && began.Sub(m.adopted) >= m.drain {
		m.acked = m.known
	}
	err = m.reader.Announce(ctx, Gateway{ID: m.id, Region: m.region, Acked: m.acked, Valid: m.valid})
	if err != nil {
		return false, fmt.Errorf("making this gateway known: %w", err)
	}
	view, err := m.reader.View(ctx, m.region, m.known)
	if err != nil {
		return false, fmt.Errorf("reading the shares: %w", err)
	}
	if view.Unchanged {
		renewed := *m.force.Load()
		renewed.began = began
		m.force.Store(&renewed)
		return false, nil
	}
	fresh := view.shares()
	m.force.Store(&inForce{fresh: fresh, fallen: fresh.fallen(), valid: m.valid, began: began})
	m.known, m.adopted = view.Version, m.now()
	return true, nil
}

// owes reports whether what was read last is not acknowledged yet.
func (m *member) owes() bool { return m.known != m.acked }

// lapse reports whether the shares are too old to count, and whether that is news.
func (m *member) lapse() (lapsed, news bool) {
	force := m.force.Load()
	lapsed = m.known != 0 && force.at(m.now()) == force.fallen && force.fallen != force.fresh
	news = lapsed != m.lapsed
	m.lapsed = lapsed
	return lapsed, news
}
