package page

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// tunnel reaches an address through ssh, by running ssh -W for each connection: the
// keys, names and jumps of the operator's own configuration count, and nothing has to
// listen anywhere.
type tunnel struct{ user, host, port, there string }

// arguments are those of ssh. It must not ask: nobody would see it.
func (t *tunnel) arguments() []string {
	arguments := []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-W", t.there}
	if t.port != "" {
		arguments = append(arguments, "-p", t.port)
	}
	if t.user != "" {
		arguments = append(arguments, "-l", t.user)
	}
	return append(arguments, "--", t.host)
}

// dial starts ssh. The connection outlives the call that needs it first, so that it
// does not end with the context.
func (t *tunnel) dial(context.Context) (net.Conn, error) {
	c := &sshConn{command: exec.Command("ssh", t.arguments()...)} //nolint:noctx // see above
	c.command.Stderr = &c.said
	c.command.WaitDelay = time.Second // a program that ssh started may hold its output
	var err error
	if c.in, err = c.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting ssh: %w", err)
	}
	if c.out, err = c.command.StdoutPipe(); err != nil {
		return nil, fmt.Errorf("starting ssh: %w", err)
	}
	if err := c.command.Start(); err != nil {
		return nil, &sshError{"ssh could not be started: " + err.Error()}
	}
	return c, nil
}

// sshConn is a connection through a process of ssh.
type sshConn struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	said    lastWords
	once    sync.Once
}

// sshError is what ssh says when it fails.
type sshError struct{ text string }

func (e *sshError) Error() string { return e.text }

// Read reads what the other end sends. At an end before its time, ssh says why.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if n == 0 && err != nil {
		c.end()
		if said := c.said.String(); said != "" {
			return 0, &sshError{"ssh: " + said}
		}
	}
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close ends the process.
func (c *sshConn) Close() error {
	c.end()
	return nil
}

func (c *sshConn) end() {
	c.once.Do(func() {
		_ = c.in.Close()
		_ = c.command.Process.Kill()
		_ = c.command.Wait() // it was ended
	})
}

// LocalAddr and RemoteAddr tell nothing: the ends are pipes.
func (c *sshConn) LocalAddr() net.Addr  { return sshAddr{} }
func (c *sshConn) RemoteAddr() net.Addr { return sshAddr{} }

// Deadlines are not kept: every call has a context, and closes the connection.
func (c *sshConn) SetDeadline(time.Time) error      { return nil }
func (c *sshConn) SetReadDeadline(time.Time) error  { return nil }
func (c *sshConn) SetWriteDeadline(time.Time) error { return nil }

type sshAddr struct{}

func (sshAddr) Network() string { return "ssh" }
func (sshAddr) String() string  { return "ssh" }

// lastWords keeps the beginning of what a process says.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// longestWords is how much of it a page can show.
const longestWords = 300

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p[:min(len(p), longestWords-min(len(w.text), longestWords))]...)
	return len(p), nil
}

// String is what was said, on one line.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(strings.Fields(string(w.text)), " ")
}
