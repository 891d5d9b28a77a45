package servertest

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// BlackHole returns an address that answers no connection attempt at all: a
// listener whose queue is full, so that the kernel drops every further SYN. It
// ends with the test.
func BlackHole(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("making a socket: %v", err)
	}
	file := os.NewFile(uintptr(fd), "black hole")
	t.Cleanup(func() { _ = file.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("binding a socket: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatalf("listening: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("reading a socket's address: %v", err)
	}
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	fillQueue(t, addr.String())
	return addr.String()
}

// fillQueue connects until an attempt is no longer answered.
func fillQueue(t testing.TB, addr string) {
	t.Helper()
	for range 64 {
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatalf("filling the queue of %s: every connection was accepted", addr)
}
