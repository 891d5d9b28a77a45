package servertest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// MasterName is the name that the sentinels of a RedisSentinels have for the master.
const MasterName = "mymaster"

// SentinelOptions says what a RedisSentinels is made of. The zero value is a
// master, two replicas and three sentinels.
type SentinelOptions struct {
	// TLS has all of them speak nothing but TLS, with one certificate.
	TLS bool

	// Args are more arguments of the Redis servers, Config more lines of the
	// configuration of the sentinels.
	Args, Config []string
}

// RedisSentinels is a master with two replicas, and three sentinels that watch them.
type RedisSentinels struct {
	// Servers are the master and then the replicas, as they were at the start.
	Servers []*RedisServer

	// Sentinels are the sentinels.
	Sentinels []*RedisServer

	// Certificate is that of every server where they speak TLS, else zero.
	Certificate Certificate
}

// Sentinels starts a RedisSentinels and waits until the sentinels know all of it.
func Sentinels(t testing.TB, o SentinelOptions) *RedisSentinels {
	t.Helper()
	s := &RedisSentinels{}
	args := slices.Clone(o.Args)
	if o.TLS {
		s.Certificate = NewCertificate(t)
		args = append(args, "--tls-replication", "yes")
	}
	args = append(args, "--repl-diskless-sync-delay", "0")
	s.Servers = append(s.Servers, startRedis(t, &RedisServer{args: args, dir: t.TempDir(), Certificate: s.Certificate}))
	host, port, _ := net.SplitHostPort(s.Servers[0].Addr)
	for range 2 {
		replica := append(slices.Clone(args), "--replicaof", host+" "+port)
		s.Servers = append(s.Servers, startRedis(t, &RedisServer{args: replica, dir: t.TempDir(), Certificate: s.Certificate}))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.startSentinel(t, o))
	}
	s.AwaitHealthy(t)
	return s
}

func (s *RedisSentinels) startSentinel(t testing.TB, o SentinelOptions) *RedisServer {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Servers[0].Addr)
	lines := append([]string{
		"sentinel monitor " + MasterName + " " + host + " " + port + " 2",
		"sentinel down-after-milliseconds " + MasterName + " 1000",
		"sentinel failover-timeout " + MasterName + " 3000",
	}, o.Config...)
	if o.TLS {
		lines = append(lines, "tls-replication yes")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatalf("writing the configuration of a sentinel: %v", err)
	}
	return startRedis(t, &RedisServer{first: []string{file, "--sentinel"}, dir: dir, Certificate: s.Certificate})
}

// URLs returns the addresses of the sentinels as configuration writes them.
func (s *RedisSentinels) URLs() []string {
	var urls []string
	for _, sentinel := range s.Sentinels {
		urls = append(urls, strings.TrimSuffix(sentinel.URL(), "/0"))
	}
	return urls
}

// Master returns the master, as the sentinels agree, nil where they do not.
func (s *RedisSentinels) Master() *RedisServer {
	var named string
	for _, sentinel := range s.Sentinels {
		parts, err := sentinel.do("sentinel", "get-master-addr-by-name", MasterName).StringSlice()
		if err != nil || len(parts) != 2 {
			return nil
		}
		addr := net.JoinHostPort(parts[0], parts[1])
		if named != "" && named != addr {
			return nil
		}
		named = addr
	}
	for _, server := range s.Servers {
		if server.Addr == named {
			return server
		}
	}
	return nil
}

// AwaitHealthy waits until every sentinel knows the others and both replicas, and
// these follow the master.
func (s *RedisSentinels) AwaitHealthy(t testing.TB) {
	t.Helper()
	until(t, "the sentinels agree on a master", func() bool { return s.Master() != nil })
	for _, sentinel := range s.Sentinels {
		until(t, "a sentinel knows all others", func() bool {
			text, err := sentinel.do("info", "sentinel").Text()
			return err == nil && strings.Contains(text, "status=ok") && strings.Contains(text, "slaves=2,sentinels=3")
		})
	}
	until(t, "the replicas follow the master", func() bool {
		master := s.Master()
		if master == nil {
			return false
		}
		text, err := master.do("info", "replication").Text()
		return err == nil && strings.Count(text, "state=online") == 2
	})
}

// Failover has the sentinels make another server the master in good order, and
// waits until they agree on it. A sentinel gives up a fail-over that a busy machine
// delays beyond its timeout, and is then asked again.
func (s *RedisSentinels) Failover(t testing.TB) {
	t.Helper()
	const patience = 10 * time.Second // over three times failover-timeout
	before := s.Master()
	var asked time.Time
	until(t, "another server is made the master", func() bool {
		if now := s.Master(); now != nil && now != before {
			return true
		}
		if time.Since(asked) > patience && s.Sentinels[0].do("sentinel", "failover", MasterName).Err() == nil {
			asked = time.Now()
		}
		return false
	})
}

// Failovers returns how many there have been, by the sentinels' count.
func (s *RedisSentinels) Failovers(t testing.TB) int {
	t.Helper()
	fields, err := s.Sentinels[0].do("sentinel", "master", MasterName).StringSlice()
	if err != nil {
		t.Fatalf("asking a sentinel about the master: %v", err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "config-epoch" {
			epoch, _ := strconv.Atoi(fields[i+1])
			return epoch
		}
	}
	return 0
}

// AwaitMaster waits until the sentinels agree on another master than before.
func (s *RedisSentinels) AwaitMaster(t testing.TB, before *RedisServer) {
	t.Helper()
	until(t, "another server is the master", func() bool {
		now := s.Master()
		return now != nil && now != before
	})
}
