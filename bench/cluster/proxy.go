package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
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
}

// parcel is a part of a reply, and when it may go on.
type parcel struct {
	to   net.Conn
	data []byte
	due  time.Time
}

// proxyRole is the environment variable that makes this command a proxy: its value
// is what the proxy asks, and its delay.
const proxyRole = "BENCH_CLUSTER_PROXY"

// proxyProcess is a proxy in a process of its own: in this one it would wait for
// the load, and the load for it, where there are few cores.
type proxyProcess struct {
	addr string
	cmd  *exec.Cmd
}

func startProxy(upstream string, delay time.Duration) (*proxyProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the delaying proxy: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), proxyRole+"="+upstream+" "+delay.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the delaying proxy: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the delaying proxy: %w", err)
	}
	p := &proxyProcess{cmd: cmd}
	if _, err := fmt.Fscanln(out, &p.addr); err != nil {
		p.close()
		return nil, fmt.Errorf("starting the delaying proxy: reading its address: %w", err)
	}
	return p, nil
}

func (p *proxyProcess) close() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// serveProxy is the process of a proxy: it tells its address and forwards until
// it is killed.
func serveProxy(role string) error {
	upstream, text, _ := strings.Cut(role, " ")
	delay, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("reading the proxy's delay: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the delaying proxy: %w", err)
	}
	p := &proxy{listener: listener, upstream: upstream, delay: delay, parcels: make(chan parcel, 1<<16)}
	go p.deliver()
	fmt.Println(listener.Addr())
	return p.accept()
}

func (p *proxy) accept() error {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return fmt.Errorf("accepting a connection to delay: %w", err)
		}
		server, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		go forward(client, server, func(data []byte) { _, _ = server.Write(data) })
		go forward(server, client, func(data []byte) {
			p.parcels <- parcel{client, append([]byte(nil), data...), time.Now().Add(p.delay)}
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
