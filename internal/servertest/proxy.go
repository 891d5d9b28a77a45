package servertest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fault is what a Proxy does to its connections. The zero value forwards.
type Fault struct {
	// ReplyDelay holds back every byte from upstream for this long.
	ReplyDelay time.Duration

	// ConnectDelay waits this long before a new connection reaches upstream.
	ConnectDelay time.Duration

	// Silent forwards requests and holds back all replies until the next Set.
	Silent bool

	// SilentFor holds back replies from the moment that one of these Redis
	// commands was forwarded on a connection; other connections are answered.
	SilentFor []string

	// Swallow is a black hole: bytes in either direction are lost. A connection
	// that lost any stays dead, because a stream with a gap is of no use; the
	// others live on after the next Set.
	Swallow bool

	// Refuse closes the listener and resets every connection. The next Set
	// listens again on the same port.
	Refuse bool

	// CutBeforeReply names Redis commands that are forwarded, and whose
	// connection is cut when their reply arrives.
	CutBeforeReply []string
}

// Proxy is a TCP proxy on a loopback port that makes the faults of a network.
// Where a connection begins with a Redis request it counts and tells commands
// apart by name; any other protocol it forwards as bytes. It is safe for
// concurrent use and ends with the test.
type Proxy struct {
	addr string
	wait sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	upstream string
	fault    *fault
	links    map[*link]struct{}
	accepted int
	commands map[string]int
	closed   bool
}

// fault is a Fault in force. Changed is closed when another one replaces it.
type fault struct {
	Fault
	changed chan struct{}
}

// NewProxy starts a proxy to the upstream address that forwards.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p := &Proxy{
		addr: listener.Addr().String(), listener: listener, upstream: upstream,
		fault: &fault{changed: make(chan struct{})},
		links: make(map[*link]struct{}), commands: make(map[string]int),
	}
	p.wait.Go(func() { p.accept(listener) })
	t.Cleanup(p.close)
	return p
}

// Addr returns the address to connect to.
func (p *Proxy) Addr() string { return p.addr }

// Set puts one fault in force instead of the one before, for existing and new
// connections. Set(Fault{}) heals.
func (p *Proxy) Set(t testing.TB, f Fault) {
	t.Helper()
	p.mu.Lock()
	old := p.fault
	p.fault = &fault{Fault: f, changed: make(chan struct{})}
	close(old.changed)
	listener := p.listener
	if f.Refuse {
		p.listener = nil
	}
	p.mu.Unlock()
	switch {
	case f.Refuse && listener != nil:
		_ = listener.Close()
		p.CutAll()
	case !f.Refuse && listener == nil:
		p.listen(t)
	}
}

// SetUpstream sends connections made from now on to another address. Existing
// ones stay where they are.
func (p *Proxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// CutAll resets every connection there is.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Accepted returns how many connections have been accepted so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open returns how many connections there are now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Commands returns how many Redis commands of these names were forwarded.
func (p *Proxy) Commands(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, name := range names {
		total += p.commands[strings.ToUpper(name)]
	}
	return total
}

// listen binds the port again after Refuse, for which it may have to wait.
func (p *Proxy) listen(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		listener, err := net.Listen("tcp", p.addr)
		if err == nil {
			p.mu.Lock()
			p.listener = listener
			p.mu.Unlock()
			p.wait.Go(func() { p.accept(listener) })
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("listening on the proxy's port again: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		p.add(conn)
	}
}

func (p *Proxy) add(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault.Refuse {
		reset(conn)
		return
	}
	p.accepted++
	l := &link{proxy: p, client: conn, upstream: p.upstream, done: make(chan struct{})}
	p.links[l] = struct{}{}
	p.wait.Go(l.run)
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) current() *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

func (p *Proxy) count(command string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands[command]++
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
	}
	p.mu.Unlock()
	p.CutAll()
	p.wait.Wait()
}
