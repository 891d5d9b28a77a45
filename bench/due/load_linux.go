package due

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// glance is how long the thread sleeps at most, so that it notes an end.
	glance = 100 * time.Millisecond
	// timerIndex stands for the timer where connections have their number.
	timerIndex = -1
)

// generator is a load under way.
type generator struct {
	Load
	to          netip.AddrPort
	epoll       int
	timer       int
	connections []connection
	free        []int // connections; the one that was free last is taken first
	draw        *rand.Rand
	request     []byte
	prefix      int // bytes of a request before its tenant's number

	began   time.Time
	next    int  // the first that is not sent
	waiting bool // whether that is due and no connection was free
	last    time.Duration
	report  Report
	took    []time.Duration
	late    []time.Duration
}

// Run sends the load. It needs a thread of its own, and takes the caller's.
func Run(ctx context.Context, l Load) (Report, error) {
	if err := l.Validate(); err != nil {
		return Report{}, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newGenerator(l)
	defer g.close()
	if err := g.open(); err != nil {
		return Report{}, err
	}
	before, err := processorTime()
	if err != nil {
		return Report{}, err
	}
	if err := g.run(ctx); err != nil {
		return Report{}, err
	}
	after, err := processorTime()
	if err != nil {
		return Report{}, err
	}
	return g.sum(after - before)
}

func newGenerator(l Load) *generator {
	total := l.total()
	g := &generator{
		Load: l, to: netip.MustParseAddrPort(l.Addr), epoll: -1, timer: -1,
		connections: make([]connection, l.Connections), free: make([]int, 0, l.Connections),
		draw: rand.New(rand.NewPCG(1, 1)), //nolint:gosec // the same tenants in the same order each time
		took: make([]time.Duration, 0, total), late: make([]time.Duration, 0, total),
		request: []byte("GET / HTTP/1.1\r\nHost: " + l.Addr + "\r\nX-Api-Key: tenant-"),
	}
	g.prefix, g.report.Due = len(g.request), total
	for i := range g.connections {
		g.connections[i].fd = -1
	}
	return g
}

// open makes all connections, so that none is made while requests are due.
func (g *generator) open() error {
	var err error
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	// By its edge, so that nobody has to read it.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: timerIndex}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, g.timer, &event); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	for i := range g.connections {
		if err := g.connect(i); err != nil {
			return err
		}
	}
	return nil
}

// connect opens a connection, which is free then.
func (g *generator) connect(index int) error {
	c := &g.connections[index]
	if err := c.open(g.to); err != nil {
		c.fd = -1
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if err := unix.EpollCtl(g.epoll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	g.free = append(g.free, index)
	return nil
}

func (g *generator) close() {
	for i := range g.connections {
		if g.connections[i].fd >= 0 {
			g.connections[i].close()
		}
	}
	for _, fd := range []int{g.timer, g.epoll} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// run sends what is due and takes what comes until all is answered, or nobody can
// wait any longer.
func (g *generator) run(ctx context.Context) error {
	events := make([]unix.EpollEvent, 256)
	g.began = time.Now()
	for {
		now := time.Since(g.began)
		if err := g.sendDue(now); err != nil {
			return err
		}
		ended := g.next == g.report.Due || now >= g.Length
		switch under := g.underWay(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case ended && (under == 0 || now >= g.Length+patience):
			g.report.Unsent = g.report.Due - g.next
			g.report.Broken += under
			return nil
		}
		if err := g.sleep(events); err != nil {
			return err
		}
	}
}

// underWay is how many requests wait for their answers.
func (g *generator) underWay() int { return len(g.connections) - len(g.free) }

// sendDue sends what is due, as far as connections are free.
func (g *generator) sendDue(now time.Duration) error {
	if g.waiting && now >= g.Length {
		return nil // what waits then is not sent any more
	}
	for ; g.next < g.report.Due; g.next++ {
		due := g.at(g.next)
		if due > now {
			g.waiting = false
			return g.wake(due - now)
		}
		if len(g.free) == 0 {
			g.waiting = true
			return nil
		}
		if !g.waiting {
			g.late = append(g.late, now-due)
		}
		if err := g.send(due); err != nil {
			return err
		}
		now = time.Since(g.began)
	}
	g.waiting = false
	return nil
}

// send sends the request of a random tenant.
func (g *generator) send(due time.Duration) error {
	index := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	g.request = strconv.AppendInt(g.request[:g.prefix], int64(g.draw.IntN(g.Tenants)), 10)
	g.request = append(g.request, "\r\n\r\n"...)
	if err := g.connections[index].send(g.request, due); err != nil {
		return g.replace(index)
	}
	return nil
}

// wake lets the thread sleep no longer than that.
func (g *generator) wake(after time.Duration) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(g.timer, 0, &spec, nil))
}

// sleep waits for the next that is due, or for answers, and takes those.
func (g *generator) sleep(events []unix.EpollEvent) error {
	n, err := wait(g.epoll, events)
	if err != nil {
		return err
	}
	for _, event := range events[:n] {
		if event.Fd == timerIndex {
			continue
		}
		if err := g.receive(int(event.Fd)); err != nil {
			return err
		}
	}
	return nil
}

// wait is epoll_wait without a word to Go's scheduler. That would take the thread
// for one that blocks, and look after it 50,000 times a second.
func wait(epoll int, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(glance.Milliseconds()), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	default:
		return 0, os.NewSyscallError("epoll_pwait", errno)
	}
}

// receive takes what has come on a connection.
func (g *generator) receive(index int) error {
	c := &g.connections[index]
	status, err := c.receive()
	switch {
	case err != nil:
		return g.replace(index)
	case status == 0:
		return nil
	}
	g.last = time.Since(g.began)
	g.took = append(g.took, g.last-c.due)
	if status < 200 || status >= 400 {
		g.report.Statuses++
	}
	g.free = append(g.free, index)
	return nil
}

// replace opens a connection anew, and counts the request that it had under way.
func (g *generator) replace(index int) error {
	c := &g.connections[index]
	if c.busy {
		g.report.Broken++
	} else {
		g.forget(index)
	}
	c.close()
	return g.connect(index)
}

// forget takes a connection from the free ones.
func (g *generator) forget(index int) {
	for i, other := range g.free {
		if other == index {
			g.free = append(g.free[:i], g.free[i+1:]...)
			return
		}
	}
}

// sum is the report.
func (g *generator) sum(cpu time.Duration) (Report, error) {
	r := g.report
	if r.Answered = len(g.took); r.Answered == 0 {
		return Report{}, fmt.Errorf("sending to %s: %w", g.Addr, errNothing)
	}
	r.Took, r.CPU = g.last, cpu
	r.P50, r.P99 = quantile(g.took, 0.50), quantile(g.took, 0.99)
	r.Late50, r.Late99 = quantile(g.late, 0.50), quantile(g.late, 0.99)
	return r, nil
}

// processorTime is what this process has used.
func processorTime() (time.Duration, error) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}
