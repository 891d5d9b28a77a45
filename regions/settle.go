package regions

import "slices"

// step moves the limit toward its targets as far as that is safe now, and reports
// whether anything changed. Released tells whether it is certain that every
// gateway of a region gives its share at most.
func (l *Limit) step(released func(region string) bool) bool {
	changed := l.release(released)
	changed = l.lower() || changed
	return l.raise() || changed
}

// release lets go of what is certainly out of use.
func (l *Limit) release(released func(string) bool) (changed bool) {
	for i := range l.Portions {
		p := &l.Portions[i]
		if p.Held > p.Share && released(p.Region) {
			p.Held, changed = p.Share, true
		}
	}
	return changed
}

// lower asks regions to give less. What they held stays held.
func (l *Limit) lower() (changed bool) {
	for i := range l.Portions {
		p := &l.Portions[i]
		if p.Target < p.Share {
			p.Share, changed = p.Target, true
		}
	}
	return changed
}

// raise lets regions give more: what they still hold, and of what nobody holds.
// Those that have the least of what they are to have come first.
func (l *Limit) raise() (changed bool) {
	free := Budget - l.held()
	for _, i := range l.neediest() {
		p := &l.Portions[i]
		more := min(p.Target, p.Held+max(free, 0)) - p.Share
		if more <= 0 {
			continue
		}
		p.Share += more
		free -= max(0, p.Share-p.Held)
		p.Held = max(p.Held, p.Share)
		changed = true
	}
	return changed
}

// held is the sum of what is held.
func (l *Limit) held() (sum Share) {
	for i := range l.Portions {
		sum += l.Portions[i].Held
	}
	return sum
}

// neediest returns the numbers of the portions in the order in which they are raised.
func (l *Limit) neediest() []int {
	order := make([]int, len(l.Portions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		p, q := &l.Portions[a], &l.Portions[b]
		left, right := int64(p.Share)*int64(q.Target), int64(q.Share)*int64(p.Target)
		return int(min(max(left-right, -1), 1))
	})
	return order
}

// settled reports whether nothing is under way.
func (l *Limit) settled() bool {
	return !slices.ContainsFunc(l.Portions, func(p Portion) bool { return p.Share != p.Target || p.Held != p.Share })
}

// portion returns that of a region, nil where it has none.
func (l *Limit) portion(region string) *Portion {
	for i := range l.Portions {
		if l.Portions[i].Region == region {
			return &l.Portions[i]
		}
	}
	return nil
}

// clone returns a copy that shares nothing.
func (l *Limit) clone() Limit {
	copied := *l
	copied.Portions = slices.Clone(l.Portions)
	return copied
}
