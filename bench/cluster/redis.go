package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a private redis-server process on a loopback port, which keeps
// nothing on disk. Ctrl-C ends it too: it is in the same process group.
type redisServer struct {
	addr   string
	client *redis.Client
	cmd    *exec.Cmd
	done   chan struct{}
	dir    string
}

// startRedis starts a server and waits, for ten seconds at most, until it answers.
func startRedis() (*redisServer, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is not on this machine: install it with `apt-get install redis-server`")
	}
	dir, err := os.MkdirTemp("", "bench-cluster-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for redis-server: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: "127.0.0.1:" + port, dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(binary, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting redis-server: %w", err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, MaxRetries: -1, DisableIdentity: true})
	if err := s.await(); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

func (s *redisServer) await() error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			_ = conn.Close() // asked first because the client logs what it cannot reach
			if err = s.client.Ping(context.Background()).Err(); err == nil {
				return nil
			}
		}
		select {
		case <-s.done:
			return errors.New("starting redis-server: it ended at once")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.New("starting redis-server: it was not ready within ten seconds")
}

// kill ends the server as a crash does. It may be called more than once.
func (s *redisServer) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// close ends the server and removes what it left.
func (s *redisServer) close() {
	_ = s.client.Close()
	s.kill()
	_ = os.RemoveAll(s.dir)
}

// usage is what a server has spent since it began.
type usage struct {
	at     time.Time
	cpu    time.Duration
	calls  int64         // of the script
	script time.Duration // in those
}

// usage reads INFO.
func (s *redisServer) usage() (usage, error) {
	u := usage{at: time.Now()}
	text, err := s.client.InfoMap(context.Background(), "cpu", "commandstats").Result()
	if err != nil {
		return u, fmt.Errorf("reading INFO: %w", err)
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(text["CPU"][name], 64)
		if err != nil {
			return u, fmt.Errorf("reading %s of INFO: %w", name, err)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	for field := range strings.SplitSeq(text["Commandstats"]["cmdstat_evalsha"], ",") {
		if digits, found := strings.CutPrefix(field, "calls="); found {
			u.calls, _ = strconv.ParseInt(digits, 10, 64)
		}
		if digits, found := strings.CutPrefix(field, "usec="); found {
			micros, _ := strconv.ParseInt(digits, 10, 64)
			u.script = time.Duration(micros) * time.Microsecond
		}
	}
	return u, nil
}

// redisVersion returns the first line of `redis-server --version` up to its version.
func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return "unknown"
	}
	scanner := bufio.NewScanner(strings.NewReader(string(out)))
	scanner.Split(bufio.ScanWords)
	for scanner.Scan() {
		if version, found := strings.CutPrefix(scanner.Text(), "v="); found {
			return version
		}
	}
	return "unknown"
}

// freePort returns a port that was free a moment ago.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
