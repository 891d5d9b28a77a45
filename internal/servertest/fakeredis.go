package servertest

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"testing"
)

// FakeRedisServer accepts connections and handshakes like a Redis 7 and answers
// scripts with whatever bytes a test wants. It ends with the test.
type FakeRedisServer struct {
	// Addr is the host and port that the server listens on.
	Addr string

	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex
	answers map[string][]byte
	cut     bool
	conns   map[net.Conn]struct{}
	calls   map[string]int
	closed  bool
}

// FakeRedis starts a server that answers EVAL and EVALSHA with reply, byte for
// byte; an empty reply never answers them.
func FakeRedis(t testing.TB, reply []byte) *FakeRedisServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a fake Redis: %v", err)
	}
	s := &FakeRedisServer{
		Addr: listener.Addr().String(), listener: listener,
		answers: fakeAnswers(reply), conns: make(map[net.Conn]struct{}), calls: make(map[string]int),
	}
	s.wait.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

// URL returns the address as configuration writes it.
func (s *FakeRedisServer) URL() string { return "redis://" + s.Addr + "/0" }

// Answer makes raw the answer to a command from now on.
func (s *FakeRedisServer) Answer(command string, raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[strings.ToUpper(command)] = raw
}

// AnswerScripts makes raw the answer to EVAL and EVALSHA from now on.
func (s *FakeRedisServer) AnswerScripts(raw []byte) {
	s.Answer("EVAL", raw)
	s.Answer("EVALSHA", raw)
}

// CutAfterScripts makes the server close a connection once it has written its
// answer to a script, which may be half a reply.
func (s *FakeRedisServer) CutAfterScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
}

// Calls returns how often the named commands came.
func (s *FakeRedisServer) Calls(names ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, name := range names {
		total += s.calls[strings.ToUpper(name)]
	}
	return total
}

func (s *FakeRedisServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			reset(conn)
		} else {
			s.conns[conn] = struct{}{}
			s.wait.Go(func() { s.serve(conn) })
		}
		s.mu.Unlock()
	}
}

func (s *FakeRedisServer) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		request, err := readRequest(in)
		if err != nil {
			return
		}
		raw, cut := s.answer(request.name)
		if _, err := conn.Write(raw); err != nil || cut {
			return
		}
	}
}

func (s *FakeRedisServer) answer(command string) (raw []byte, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[command]++
	raw, known := s.answers[command]
	if !known {
		return []byte("-ERR unknown command\r\n"), false
	}
	return raw, s.cut && (command == "EVAL" || command == "EVALSHA")
}

func (s *FakeRedisServer) close() {
	s.mu.Lock()
	s.closed = true
	_ = s.listener.Close()
	for conn := range s.conns {
		reset(conn)
	}
	s.mu.Unlock()
	s.wait.Wait()
}

func fakeAnswers(reply []byte) map[string][]byte {
	const info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nmaxmemory_policy:noeviction\r\n"
	return map[string][]byte{
		"HELLO": []byte("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:2\r\n" +
			"$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"),
		"PING":    []byte("+PONG\r\n"),
		"CLIENT":  []byte("+OK\r\n"),
		"SELECT":  []byte("+OK\r\n"),
		"AUTH":    []byte("+OK\r\n"),
		"CONFIG":  []byte("*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n"),
		"INFO":    BulkReply(info),
		"EVAL":    reply,
		"EVALSHA": reply,
	}
}
