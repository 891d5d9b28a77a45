package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// laboratory is what the measurements need: builds of Caddy, a Redis, a service
// and the gateways, each on a port of its own.
type laboratory struct {
	dir       string
	ports     ports
	wrk       wrk
	generator generator
	earlier   *earlier // nil: there is none to compare with
	redis     *redisServer
	upstream  *upstream
	service   string // the upstream's address
	gateways  map[site]*gateway
}

// newLaboratory builds and starts everything but the gateways. Against names the
// earlier commit to compare with, blank for none.
func newLaboratory(ctx context.Context, against string) (l *laboratory, err error) {
	l = &laboratory{ports: ports{taken: map[string]bool{}}, gateways: map[site]*gateway{}}
	if l.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	l.generator = newGenerator(l.dir)
	if err = l.equip(ctx, against); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *laboratory) equip(ctx context.Context, against string) error {
	script := filepath.Join(l.dir, "request.lua")
	if err := os.WriteFile(script, requestScript, 0o600); err != nil {
		return fmt.Errorf("writing the script of wrk: %w", err)
	}
	var err error
	if l.wrk, err = findWrk(script); err != nil {
		return err
	}
	addr, err := l.ports.free()
	if err != nil {
		return err
	}
	if l.redis, err = startRedis(ctx, addr, l.dir); err != nil {
		return err
	}
	if l.service, err = l.ports.free(); err != nil {
		return err
	}
	if l.upstream, err = startUpstream(ctx, l.service); err != nil {
		return fmt.Errorf("starting the service behind the gateways: %w", err)
	}
	say("building Caddy without and with what is measured")
	if err := build(ctx, l.dir, buildBare, buildOurs, buildPeer, buildDue); err != nil || against == "" {
		return err
	}
	if l.earlier, err = checkOut(ctx, against, l.dir); err != nil {
		return err
	}
	say("building the commit %s", l.earlier.commit)
	return l.earlier.build(ctx, l.dir)
}

// close ends everything, the gateways first.
func (l *laboratory) close() {
	l.endGateways()
	if l.upstream != nil {
		l.upstream.end()
	}
	if l.redis != nil {
		l.redis.end()
	}
	if l.earlier != nil {
		l.earlier.remove()
	}
	_ = os.RemoveAll(l.dir)
}

// endGateways ends all gateways.
func (l *laboratory) endGateways() {
	for s, g := range l.gateways {
		g.end()
		delete(l.gateways, s)
	}
}

// start starts the gateways of the cells and waits until all of them serve.
func (l *laboratory) start(ctx context.Context, cells []cell) error {
	for _, c := range cells {
		if l.gateways[c.site] != nil {
			continue
		}
		g, err := l.gateway(c)
		if err != nil {
			return err
		}
		l.gateways[c.site] = g
	}
	for _, g := range l.gateways {
		for _, addr := range g.addrs {
			if err := g.await(ctx, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *laboratory) gateway(c cell) (*gateway, error) {
	p := places{redis: l.redis.addr, upstream: l.service}
	for i := range p.addrs {
		addr, err := l.ports.free()
		if err != nil {
			return nil, err
		}
		p.addrs[i] = addr
	}
	admin, err := l.ports.free()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(admin, ":")
	p.admin, p.dir = admin, filepath.Join(l.dir, "gateway"+port)
	return startGateway(c.site, filepath.Join(l.dir, c.site.build), c.name, p)
}

// interrupted is the error, or that the run was ended before its time.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("measuring: interrupted: %w", ctx.Err())
	}
	return err
}

// explain adds to an error what the servers that have ended had to say.
func (l *laboratory) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	processes := []*process{l.redis.process}
	for _, g := range l.gateways {
		processes = append(processes, g.process)
	}
	for _, p := range processes {
		if p.ended() {
			err = fmt.Errorf("%w\n%s has ended:\n%s", err, p.name, p.tail())
		}
	}
	return err
}

// say tells whoever waits what is going on.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}
