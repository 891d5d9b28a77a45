package due

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// answerSize bounds an answer.
const answerSize = 4096

// connection has one request under way at most.
type connection struct {
	fd    int
	busy  bool
	due   time.Duration // when the request under way was
	held  [answerSize]byte
	count int // bytes of the answer that have come
}

var errEnded = errors.New("the gateway has closed a connection")

// open connects, and never blocks from then on.
func (c *connection) open(to netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	c.fd, c.busy, c.count = fd, false, 0
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		c.close()
		return fmt.Errorf("connecting to %s: %w", to, err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		c.close()
		return os.NewSyscallError("setsockopt", err)
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
}

func (c *connection) close() { _ = unix.Close(c.fd) }

// send sends a request, which is small enough to be taken as a whole.
func (c *connection) send(text []byte, due time.Duration) error {
	c.busy, c.due, c.count = true, due, 0
	n, err := unix.Write(c.fd, text)
	if err == nil && n < len(text) {
		err = unix.EAGAIN
	}
	return os.NewSyscallError("write", err)
}

// receive takes what has come, and returns the status once the answer is whole, 0
// until then.
func (c *connection) receive() (int, error) {
	n, err := unix.Read(c.fd, c.held[c.count:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, errEnded
	}
	c.count += n
	status, length, err := answerOf(c.held[:c.count])
	switch {
	case err != nil:
		return 0, err
	case !c.busy, length == 0 && c.count == len(c.held), length > 0 && length < c.count:
		return 0, errAnswer // nobody has asked for so much
	case length > 0:
		c.busy, c.count = false, 0
	}
	return status, nil
}
