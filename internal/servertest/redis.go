package servertest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisAttempts is how many ports are tried before a test fails: a port that was
// free a moment ago may belong to another test by the time Redis binds it.
const redisAttempts = 5

// RedisServer is a private redis-server process on a loopback port. It keeps
// nothing on disk unless its arguments ask for it, and ends with the test.
type RedisServer struct {
	// Addr is the host and port that the server listens on.
	Addr string

	// Certificate is the server's certificate where it speaks TLS, else zero.
	Certificate Certificate

	args    []string
	first   []string // what comes before all other arguments
	dir     string
	process *process
}

// Redis starts a redis-server whose configuration is args, such as
// "--appendonly", "yes", after defaults that keep nothing. A missing
// redis-server fails the test with the command that installs it.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, &RedisServer{args: args, dir: t.TempDir()})
}

// RedisTLS is Redis for a server that speaks only TLS, with a certificate for
// 127.0.0.1 and localhost made for this test. Client certificates are accepted,
// not required, unless args say otherwise.
func RedisTLS(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startRedis(t, &RedisServer{args: args, dir: t.TempDir(), Certificate: NewCertificate(t)})
}

func startRedis(t testing.TB, s *RedisServer) *RedisServer {
	t.Helper()
	binary := find(t, "redis-server", "redis-server")
	for attempt := 1; ; attempt++ {
		s.Addr = FreeAddr(t)
		err := s.launch(t, binary)
		if err == nil {
			break
		}
		if attempt == redisAttempts {
			t.Fatalf("starting redis-server: %v", err)
		}
	}
	t.Cleanup(func() { s.process.signal(t, syscall.SIGKILL) })
	return s
}

// URL returns the address as configuration writes it, with database 0.
func (s *RedisServer) URL() string {
	if s.speaksTLS() {
		return "rediss://" + s.Addr + "/0"
	}
	return "redis://" + s.Addr + "/0"
}

// Client returns a plain client of the server, closed with the test.
func (s *RedisServer) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := s.client()
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends the server at once, as a crash does.
func (s *RedisServer) Kill(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGKILL)
}

// Pause stops the server's process: it keeps its connections and is silent.
func (s *RedisServer) Pause(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGSTOP)
}

// Resume goes on after Pause.
func (s *RedisServer) Resume(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGCONT)
}

// Restart ends the server in good order, if it runs, and starts it again on the
// same port with what it has on disk.
func (s *RedisServer) Restart(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGCONT)
	s.process.signal(t, syscall.SIGTERM)
	for attempt := 1; ; attempt++ {
		err := s.launch(t, s.process.cmd.Path)
		if err == nil {
			return
		}
		if attempt == redisAttempts {
			t.Fatalf("starting redis-server again: %v", err)
		}
		time.Sleep(100 * time.Millisecond) // until the port is free again
	}
}

// RestartSlowly is Restart for a server that takes a millisecond to read each key
// that it has saved, and does not wait until it has.
func (s *RedisServer) RestartSlowly(t testing.TB) {
	t.Helper()
	s.process.signal(t, syscall.SIGKILL)
	args := append(s.arguments(), "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	cmd := exec.Command(s.process.cmd.Path, args...)
	cmd.Dir = s.dir
	s.process = launch(t, cmd, filepath.Join(s.dir, "redis.log"))
	s.process.await(t, func() error {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, nil)
}

// CommandCalls returns how often the server has run the named commands, from
// INFO commandstats.
func (s *RedisServer) CommandCalls(t testing.TB, names ...string) int {
	t.Helper()
	client := s.client()
	defer client.Close()
	text, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatalf("reading commandstats: %v", err)
	}
	total := 0
	for _, name := range names {
		_, rest, found := strings.Cut(text, "cmdstat_"+strings.ToLower(name)+":calls=")
		if !found {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		calls, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatalf("reading commandstats of %s: %v", name, err)
		}
		total += calls
	}
	return total
}

// launch starts the process and waits until it is the one that answers.
func (s *RedisServer) launch(t testing.TB, binary string) error {
	t.Helper()
	cmd := exec.Command(binary, s.arguments()...)
	cmd.Dir = s.dir
	s.process = launch(t, cmd, filepath.Join(s.dir, "redis.log"))
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		err := s.probe(cmd.Process.Pid)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.done:
			return fmt.Errorf("the process ended before it was ready, see %s: %w", s.process.log, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.process.signal(t, syscall.SIGKILL)
	return fmt.Errorf("the server was not ready within ten seconds, see %s", s.process.log)
}

// probe reports whether the server answers and is the process that was started,
// not another test's on a port that was free a moment ago.
func (s *RedisServer) probe(pid int) error {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return err // asked first because the client logs what it cannot reach
	}
	_ = conn.Close()
	client := s.client()
	defer client.Close()
	text, err := client.Info(context.Background(), "server").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(text, "process_id:"+strconv.Itoa(pid)+"\r") {
		return errors.New("another server answers on the port")
	}
	return nil
}

func (s *RedisServer) arguments() []string {
	host, port, _ := strings.Cut(s.Addr, ":")
	args := append(slices.Clone(s.first), "--bind", host, "--dir", s.dir)
	if len(s.first) == 0 {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	if s.speaksTLS() {
		args = append(args, "--port", "0", "--tls-port", port,
			"--tls-cert-file", s.Certificate.CertFile, "--tls-key-file", s.Certificate.KeyFile,
			"--tls-ca-cert-file", s.Certificate.CertFile, "--tls-auth-clients", "optional")
	} else {
		args = append(args, "--port", port)
	}
	return append(args, s.args...)
}

// client makes a client that neither retries nor waits long, so that a test
// sees what happened. A password in the arguments is used.
func (s *RedisServer) client() *redis.Client {
	options := &redis.Options{
		Addr: s.Addr, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		DialTimeout: time.Second, ReadTimeout: 5 * time.Second,
	}
	for i, arg := range s.args {
		if arg == "--requirepass" && i+1 < len(s.args) {
			options.Password = s.args[i+1]
		}
	}
	if s.speaksTLS() {
		own, _ := tls.LoadX509KeyPair(s.Certificate.CertFile, s.Certificate.KeyFile)
		options.TLSConfig = &tls.Config{RootCAs: s.Certificate.pool(), Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	}
	return redis.NewClient(options)
}

func (s *RedisServer) speaksTLS() bool { return s.Certificate.CertFile != "" }
