package regions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// memory keeps the books as PostgreSQL does, with its constraint, by a clock that
// is injected. Fail is asked at each point where a call may come to nothing, and
// may let time pass there.
type memory struct {
	now  func() time.Time
	fail func(point string) error

	version  int64
	reckoned time.Time
	regions  []Region
	joined   time.Time // when the last of them came
	gateways map[string]seen
	limits   map[limit.Key]Limit
	demand   map[limit.Key]map[string]float64
	locked   bool
	careless bool // whether it forgets who is alive, as a broken job would
}

type seen struct {
	Gateway
	at time.Time
}

func newMemory(now func() time.Time) *memory {
	return &memory{
		now: now, fail: func(string) error { return nil }, version: 1,
		gateways: map[string]seen{}, limits: map[limit.Key]Limit{}, demand: map[limit.Key]map[string]float64{},
	}
}

func (m *memory) Announce(_ context.Context, g Gateway) error {
	if err := m.fail("announce"); err != nil {
		return err
	}
	m.gateways[g.ID] = seen{g, m.now()}
	if !slices.ContainsFunc(m.regions, func(r Region) bool { return r.Name == g.Region }) {
		m.regions = append(m.regions, Region{Name: g.Region, Safe: DefaultSafe})
		m.joined = m.now()
	}
	return m.fail("announced")
}

func (m *memory) View(_ context.Context, region string, known int64) (View, error) {
	if err := m.fail("view"); err != nil {
		return View{}, err
	}
	view := View{Version: m.version, Unchanged: m.version == known, Shares: map[limit.Key]Share{}}
	for _, r := range m.regions {
		if r.Name == region {
			view.Safe = r.Safe
		}
	}
	for key, row := range m.limits {
		view.Shares[key] = 0
		if p := row.portion(region); p != nil {
			view.Shares[key] = p.Share
		}
	}
	return view, m.fail("viewed")
}

func (m *memory) Report(_ context.Context, region string, demand []Demand) error {
	if err := m.fail("report"); err != nil {
		return err
	}
	for _, d := range demand {
		if m.demand[d.Key] == nil {
			m.demand[d.Key] = map[string]float64{}
		}
		m.demand[d.Key][region] += d.Units
	}
	return nil
}

func (m *memory) Leave(_ context.Context, id string) error {
	if err := m.fail("leave"); err != nil {
		return err
	}
	delete(m.gateways, id)
	return nil
}

func (m *memory) Close() {}

// Update is one transaction: what it reads is of before, and it is kept whole or
// not at all.
func (m *memory) Update(_ context.Context, every time.Duration, rebalance func(*Books) Changes) (bool, error) {
	if m.locked {
		return false, nil
	}
	m.locked = true
	defer func() { m.locked = false }()
	if err := m.fail("update"); err != nil {
		return false, err
	}
	books := m.open(every)
	if err := m.fail("opened"); err != nil {
		return false, err
	}
	made := rebalance(books)
	if err := m.fail("rebalanced"); err != nil {
		return false, err
	}
	if err := m.save(books, made); err != nil {
		return false, err
	}
	return true, m.fail("committed")
}

func (m *memory) open(every time.Duration) *Books {
	books := &Books{
		Version: m.version, Next: max(m.version+1, m.now().UnixMicro()), Regions: slices.Clone(m.regions), Acked: map[string]int64{}, Gateways: map[string]int{},
		Due: m.reckoned.IsZero() || m.now().Sub(m.reckoned) >= every || m.joining() ||
			m.now().Sub(m.reckoned) >= 10*time.Second && m.now().Sub(m.joined) <= 90*time.Second,
	}
	for id, g := range m.gateways {
		if m.now().Sub(g.at) > g.Valid+g.Valid/20+Margin {
			delete(m.gateways, id)
			continue
		}
		books.Gateways[g.Region]++
		if acked, found := books.Acked[g.Region]; !found || g.Acked < acked {
			books.Acked[g.Region] = g.Acked
		}
	}
	if m.careless {
		clear(books.Acked)
	}
	for _, key := range slices.SortedFunc(maps.Keys(m.limits), compareKeys) {
		if row := m.limits[key]; books.Due || !row.settled() {
			books.Limits = append(books.Limits, row.clone())
		}
	}
	if books.Due {
		for _, key := range slices.SortedFunc(maps.Keys(m.demand), compareKeys) {
			for _, region := range slices.Sorted(maps.Keys(m.demand[key])) {
				books.Demands = append(books.Demands, Demand{Key: key, Region: region, Units: m.demand[key][region]})
			}
		}
	}
	return books
}

func (m *memory) joining() bool {
	row := m.limits[Everything()]
	return slices.ContainsFunc(m.regions, func(r Region) bool { return row.portion(r.Name) == nil })
}

var errUnsound = errors.New("the constraint refuses a row")

func (m *memory) save(books *Books, made Changes) error {
	for _, row := range made.Limits {
		total := Share(0)
		for _, p := range row.Portions {
			if p.Share < 0 || p.Share > p.Held || p.Target < 0 {
				return fmt.Errorf("%w: %+v", errUnsound, row)
			}
			total += p.Held
		}
		if total > Budget {
			return fmt.Errorf("%w: %+v", errUnsound, row)
		}
	}
	for _, row := range made.Limits {
		m.limits[row.Key] = row.clone()
	}
	for _, key := range made.Deleted {
		delete(m.limits, key)
	}
	m.version = made.Version
	if made.Reckoned {
		m.reckoned = m.now()
	}
	if books.Due {
		for _, by := range m.demand {
			for region := range by {
				by[region] /= 2
			}
		}
	}
	return nil
}

// Interface guards
var _ database = (*memory)(nil)
