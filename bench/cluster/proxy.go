package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// proxy forwards TCP connections and holds each reply back for a fixed time, as
// a longer way would. Replies wait side by side, so one does not delay another.
// The proxy of the tests keeps time by Go's timers, which is not precise enough.
type proxy struct {
	listener net.Listener
	upstream string
	delay    time.Duration
	parcels  chan parcel
	wait     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// parcel is a part of a reply, and when it may go on.
type parcel struct {
	to   net.Conn
	data []byte
	due  time.Time
}

func startProxy(upstream string, delay time.Duration) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the delaying proxy: %w", err)
	}
	p := &proxy{listener: listener, upstream: upstream, delay: delay, parcels: make(chan parcel, 1<<16)}
	go p.deliver()
	p.wait.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.wait.Wait()
	close(p.parcels)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wait.Go(func() { forward(client, server, func(data []byte) { _, _ = server.Write(data) }) })
		p.wait.Go(func() {
			forward(server, client, func(data []byte) {
				p.parcels <- parcel{client, append([]byte(nil), data...), time.Now().Add(p.delay)}
			})
		})
	}
}

// forward hands on what it reads until either side ends.
func forward(from, other net.Conn, pass func([]byte)) {
	defer other.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		pass(buffer[:n])
	}
}

// deliver writes replies when they are due. All are held for the same time, so
// the first that came is the first that goes.
func (p *proxy) deliver() {
	preciseThread()
	for parcel := range p.parcels {
		for left := time.Until(parcel.due); left > 0; left = time.Until(parcel.due) {
			sleep(left)
		}
		_, _ = parcel.to.Write(parcel.data)
	}
}
