package servertest

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"
)

// link is one connection through a Proxy.
type link struct {
	proxy    *Proxy
	client   net.Conn
	upstream string
	done     chan struct{}

	mu      sync.Mutex
	server  net.Conn
	ended   bool
	dead    bool   // bytes were lost, so nothing passes any more
	holding *fault // the fault under which replies are held back
	cutting bool   // the next reply cuts the connection
}

// reply is what came from upstream, and when it may go on.
type reply struct {
	data []byte
	due  time.Time
}

func (l *link) run() {
	defer l.proxy.remove(l)
	defer l.cut()
	if !l.pause(l.proxy.current().ConnectDelay) {
		return
	}
	server, err := net.DialTimeout("tcp", l.upstream, 5*time.Second)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	ended := l.ended
	l.mu.Unlock()
	if ended {
		reset(server)
		return
	}
	replies := make(chan reply, 1024)
	l.proxy.wait.Go(func() { l.receive(server, replies) })
	l.proxy.wait.Go(func() { l.deliver(replies) })
	l.send(server)
}

// cut resets both sides. It may be called more than once.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.done)
	reset(l.client)
	if l.server != nil {
		reset(l.server)
	}
}

// send forwards requests. The first byte tells whether they are Redis'.
func (l *link) send(server net.Conn) {
	in := bufio.NewReader(l.client)
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] == '*' {
		l.sendCommands(in, server)
		return
	}
	buffer := make([]byte, 32<<10)
	for {
		n, err := in.Read(buffer)
		if err != nil {
			return
		}
		if l.lost(l.proxy.current()) {
			continue
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) sendCommands(in *bufio.Reader, server net.Conn) {
	for {
		request, err := readRequest(in)
		if err != nil {
			return
		}
		fault := l.proxy.current()
		if l.lost(fault) {
			continue
		}
		l.mu.Lock()
		if slices.Contains(fault.SilentFor, request.name) {
			l.holding = fault
		}
		if slices.Contains(fault.CutBeforeReply, request.name) {
			l.cutting = true
		}
		l.mu.Unlock()
		l.proxy.count(request.name)
		if _, err := server.Write(request.raw); err != nil {
			return
		}
	}
}

// receive reads replies and notes when each may go on.
func (l *link) receive(server net.Conn, replies chan<- reply) {
	defer close(replies)
	for {
		buffer := make([]byte, 32<<10)
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		cutting := l.cutting
		l.mu.Unlock()
		if cutting {
			l.cut()
			return
		}
		fault := l.proxy.current()
		if l.lost(fault) {
			continue
		}
		select {
		case replies <- reply{buffer[:n], time.Now().Add(fault.ReplyDelay)}:
		case <-l.done:
			return
		}
	}
}

// deliver writes replies to the client when they are due and nothing holds them.
func (l *link) deliver(replies <-chan reply) {
	defer l.cut()
	for r := range replies {
		if !l.pause(time.Until(r.due)) || !l.awaitRelease() {
			return
		}
		if _, err := l.client.Write(r.data); err != nil {
			return
		}
	}
}

// awaitRelease waits while the fault in force holds replies back.
func (l *link) awaitRelease() bool {
	for {
		fault := l.proxy.current()
		l.mu.Lock()
		held := fault.Silent || l.holding == fault
		l.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-fault.changed:
		case <-l.done:
			return false
		}
	}
}

// lost reports whether bytes vanish now, and remembers that some did.
func (l *link) lost(f *fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || f.Swallow
	return l.dead
}

// pause waits for d and reports whether the link still lives.
func (l *link) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// reset closes a connection so that the other side sees it at once.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
