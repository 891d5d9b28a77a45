package rulecache

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// wireProxy passes the messages of PostgreSQL on and changes some.
type wireProxy struct {
	addr string
	// fakePID gives every session a process id that is not the server's, as a
	// pooler does.
	fakePID atomic.Bool
	// cutAfterRows, above 0, cuts a connection after as many rows.
	cutAfterRows atomic.Int64
}

func newWireProxy(t testing.TB, upstream string) *wireProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &wireProxy{addr: listener.Addr().String()}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wait.Go(func() { p.pass(client, upstream) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		wait.Wait()
	})
	return p
}

func (p *wireProxy) pass(client net.Conn, upstream string) {
	defer client.Close()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	var wait sync.WaitGroup
	wait.Go(func() {
		io.Copy(server, client)
		server.Close()
	})
	p.answers(client, server)
	client.Close()
	server.Close()
	wait.Wait()
}

func (p *wireProxy) answers(client, server net.Conn) {
	rows := int64(0)
	for {
		var head [5]byte
		if _, err := io.ReadFull(server, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		switch head[0] {
		case 'K':
			if p.fakePID.Load() {
				binary.BigEndian.PutUint32(body, 1)
			}
		case 'D':
			rows++
			if most := p.cutAfterRows.Load(); most > 0 && rows > most {
				return
			}
		}
		if _, err := client.Write(append(head[:], body...)); err != nil {
			return
		}
	}
}
