// Package servertest starts private servers for tests: real Redis and real
// PostgreSQL processes from PATH on free loopback ports, and a proxy that makes
// the faults of a network. What it starts ends with the test.
package servertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// find returns the path of a server's binary, or fails the test with the
// sentence that says how to get it.
func find(t testing.TB, binary, debianPackage string, places ...string) string {
	t.Helper()
	if path, err := exec.LookPath(binary); err == nil {
		return path
	}
	for _, place := range places {
		matches, _ := filepath.Glob(filepath.Join(place, binary))
		if len(matches) > 0 {
			return matches[len(matches)-1]
		}
	}
	t.Fatalf("%s is not on this machine: install it with `apt-get install %s`, or run `make test`, which installs what is missing", binary, debianPackage)
	return ""
}

// FreeAddr returns a loopback address whose port was free a moment ago, and which no
// other call gets until the test ends: Caddy shares ports, so two gateways on one would
// answer each other's requests. It is not one of those that the system gives to
// outgoing connections, so that none takes it before the server does.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, last = 10_000, 32_000
	for range 1000 {
		port := first + rand.IntN(last-first)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if listener, err := net.Listen("tcp", addr); err == nil {
			listener.Close()
			if reserve(t, port) {
				return addr
			}
		}
	}
	t.Fatal("finding a free port: none of a thousand is")
	return ""
}

// reserve keeps a port from the calls of FreeAddr in all processes until the test ends.
// Only Linux has names that nothing has to clean up after a process that was killed.
func reserve(t testing.TB, port int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	held, err := net.Listen("unix", fmt.Sprintf("@github.com/caddygate/ratelimit/port/%d", port))
	if err != nil {
		return false
	}
	t.Cleanup(func() { held.Close() })
	return true
}

// process is a server that can be stopped the hard way and started again.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  string
}

// launch starts cmd in its own process group with its output in logFile.
func launch(t testing.TB, cmd *exec.Cmd, logFile string) *process {
	t.Helper()
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("opening the server's log: %v", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{}), log: logFile}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p
}

// signal sends sig to the process group, and waits for the end if sig ends it.
func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	select {
	case <-p.done:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	if sig == syscall.SIGSTOP || sig == syscall.SIGCONT {
		return
	}
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// await polls ready until it answers nil, and fails with the server's log after a
// minute, or at once where the process ended and revive is nil.
func (p *process) await(t testing.TB, ready func() error, revive func()) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			err = fmt.Errorf("the process ended: %w", err)
			if revive != nil && time.Now().Before(deadline) {
				time.Sleep(50 * time.Millisecond)
				revive()
				continue
			}
		default:
			if time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
				continue
			}
		}
		text, _ := os.ReadFile(p.log)
		t.Fatalf("%s did not become ready: %v\n%s", p.cmd.Path, err, text)
	}
}
