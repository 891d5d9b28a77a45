package main

import (
	"context"
	"fmt"
	"time"
)

// introduce lets each gateway see each tenant once, so that none is new to it when
// it is measured, and notes what memory that has taken.
func (l *laboratory) introduce(ctx context.Context, r *results) error {
	say("introducing %s tenants to each gateway", grouped(int64(r.plan.touched)))
	for _, c := range r.plan.newcomers() {
		g := l.gateways[c.site]
		if err := g.touch(ctx, r.plan.touched); err != nil {
			return err
		}
		if _, known := r.memory[c.name]; known {
			continue // under another limit
		}
		used, err := g.usage()
		if err != nil {
			return err
		}
		r.memory[c.name] = used.resident
	}
	return nil
}

// warm puts each gateway for a second under a load that does not count, where the
// introduction has not.
func (l *laboratory) warm(ctx context.Context, p plan) error {
	say("warming up")
	for _, c := range p.cold() {
		few := load{tenants: 1000}
		if c.flood {
			few.tenants = 1
		}
		if _, err := l.wrk.fire(ctx, l.gateways[c.site].addrs[c.answer], few, time.Second); err != nil {
			return fmt.Errorf("warming up %s: %w", c.name, err)
		}
	}
	return nil
}

// newcomers are cells of all gateways that are to be introduced, one of each.
func (p plan) newcomers() []cell {
	return p.each(func(c cell) (port, bool) { return port{c.site, answerStatic}, c.introduced() })
}

// cold are cells of all ports to which the introduction sends nothing, one of each.
func (p plan) cold() []cell {
	return p.each(func(c cell) (port, bool) { return port{c.site, c.answer}, c.answer != answerStatic || !c.introduced() })
}

// port is where a gateway gives one of its answers.
type port struct {
	site   site
	answer answer
}

// each are the cells of which at tells a port, one for each port.
func (p plan) each(at func(cell) (port, bool)) []cell {
	seen := map[port]bool{}
	var list []cell
	for _, g := range p.groups {
		for _, c := range g.cells {
			found, wanted := at(c)
			if !wanted || seen[found] {
				continue
			}
			seen[found] = true
			list = append(list, c)
		}
	}
	return list
}
