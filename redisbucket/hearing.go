package redisbucket

import (
	"bytes"
	"fmt"
	"net"
)

// mostHeard is how many bytes of a server's first reply are kept.
const mostHeard = 4 << 10

// hearing is a connection that keeps what its server says first. A Redis that takes
// no client, because it has as many as it may or is in protected mode, says so at
// once and hangs up. The client that greets passes the reply over, as that of a
// server without HELLO, and fails at the end of the connection, which tells nobody why.
type hearing struct {
	net.Conn
	heard []byte
}

// Read reads from the connection.
func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.heard = append(h.heard, p[:min(n, mostHeard-len(h.heard))]...)
	return n, err
}

// explained adds to the error of a connection that ended with what its server said
// before it hung up.
func (h *hearing) explained(err error) error {
	if err == nil || fromRedis(err) || transportReason(err) != "connection" {
		return err
	}
	line, _, whole := bytes.Cut(h.heard, []byte("\r\n"))
	if said := errorIn(line); whole && said != nil && !unknownCommand(said) {
		return fmt.Errorf("%w: %w", said, err)
	}
	return err
}
