package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a server that was started for the measurements. Its output is in a
// file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
}

// How long servers may take to begin and to end.
const (
	readyTimeout = 30 * time.Second
	endTimeout   = 10 * time.Second
)

// launch starts the command, out of reach of the terminal's Ctrl-C, so that this
// program ends it in good order.
func launch(cmd *exec.Cmd, name, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// await returns when the process listens on addr.
func (p *process) await(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	dialer := net.Dialer{Timeout: time.Second}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("starting %s: it ended:\n%s", p.name, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("starting %s: it does not listen on %s: %w\n%s", p.name, addr, ctx.Err(), p.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ended reports whether the process has come to its end.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end ends the process, if need be the hard way, and waits for it.
func (p *process) end() {
	if p.ended() {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(endTimeout):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// tail is the end of what the process has said.
func (p *process) tail() string {
	const most = 2000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// usage is what the process has used of the machine.
func (p *process) usage() (usage, error) {
	u, err := usageOf(filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid)))
	if err != nil {
		return usage{}, fmt.Errorf("reading what %s uses: %w", p.name, err)
	}
	return u, nil
}

// ports hands out loopback addresses that nobody listens on, none twice.
type ports struct{ taken map[string]bool }

// free returns an address outside the ports that the system gives to outgoing
// connections.
func (p *ports) free() (string, error) {
	const first, last = 10_000, 32_000
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first)) //nolint:gosec // any port does
		if p.taken[addr] {
			continue
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		p.taken[addr] = true
		return addr, listener.Close()
	}
	return "", errors.New("finding a free port: none of a thousand is")
}
