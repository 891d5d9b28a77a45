package servertest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterNodeTimeout is after how many milliseconds a silent node counts as down.
const clusterNodeTimeout = "1000"

// slotCount is how many hash slots a Redis Cluster has.
const slotCount = 16384

// ClusterOptions says what a RedisCluster is made of. The zero value is three
// masters without replicas.
type ClusterOptions struct {
	// Masters share the slots evenly. Default: 3.
	Masters int

	// Replicas is how many each master has. Default: none.
	Replicas int

	// TLS has all of them speak nothing but TLS, with one certificate.
	TLS bool

	// Args are more arguments of each server.
	Args []string
}

// RedisCluster is a private Redis Cluster on loopback ports, which goes on with
// the slots that are left when a master is gone.
type RedisCluster struct {
	// Servers are the masters, then the replicas, as they were at the start.
	Servers []*RedisServer

	// Certificate is that of every server where they speak TLS, else zero.
	Certificate Certificate
}

// Cluster starts a RedisCluster and waits until every server knows the whole of it.
func Cluster(t testing.TB, o ClusterOptions) *RedisCluster {
	t.Helper()
	if o.Masters == 0 {
		o.Masters = 3
	}
	c := &RedisCluster{}
	if o.TLS {
		c.Certificate = NewCertificate(t)
	}
	for range o.Masters * (1 + o.Replicas) {
		c.Servers = append(c.Servers, c.start(t, o))
	}
	for _, s := range c.Servers[1:] {
		c.meet(t, s)
	}
	for i, s := range c.Servers[:o.Masters] {
		first, last := i*slotCount/o.Masters, (i+1)*slotCount/o.Masters-1
		s.must(t, "cluster", "addslotsrange", first, last)
	}
	for i, s := range c.Servers[o.Masters:] {
		id := c.ID(t, c.Servers[i%o.Masters])
		until(t, "the replica knows its master", func() bool { return s.do("cluster", "replicate", id).Err() == nil })
	}
	c.AwaitHealthy(t)
	return c
}

func (c *RedisCluster) start(t testing.TB, o ClusterOptions) *RedisServer {
	t.Helper()
	_, bus, _ := net.SplitHostPort(FreeAddr(t))
	args := []string{
		"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", clusterNodeTimeout,
		"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
	}
	if o.TLS {
		args = append(args, "--tls-cluster", "yes", "--tls-replication", "yes")
	}
	return startRedis(t, &RedisServer{args: append(args, o.Args...), dir: t.TempDir(), Certificate: c.Certificate})
}

// meet has the first server get to know another one.
func (c *RedisCluster) meet(t testing.TB, s *RedisServer) {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	c.Servers[0].must(t, "cluster", "meet", host, port, s.argument("--cluster-port"))
}

// URLs returns the addresses of all servers as configuration writes them.
func (c *RedisCluster) URLs() []string {
	var urls []string
	for _, s := range c.Servers {
		urls = append(urls, strings.TrimSuffix(s.URL(), "/0"))
	}
	return urls
}

// ID returns a server's name in the cluster.
func (c *RedisCluster) ID(t testing.TB, s *RedisServer) string {
	t.Helper()
	return fmt.Sprint(s.must(t, "cluster", "myid"))
}

// AwaitHealthy waits until every server says that all is well and knows every other.
func (c *RedisCluster) AwaitHealthy(t testing.TB) {
	t.Helper()
	for _, s := range c.Servers {
		until(t, "the cluster is whole", func() bool { return c.healthy(s) })
	}
}

func (c *RedisCluster) healthy(s *RedisServer) bool {
	text, err := s.do("cluster", "info").Text()
	known := "cluster_known_nodes:" + strconv.Itoa(len(c.Servers)) + "\r"
	if err != nil || !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, known) ||
		!strings.Contains(text, "cluster_slots_ok:"+strconv.Itoa(slotCount)+"\r") {
		return false
	}
	nodes, err := s.do("cluster", "nodes").Text()
	if err != nil || strings.Contains(nodes, "fail") || strings.Contains(nodes, "handshake") {
		return false
	}
	role, err := s.do("info", "replication").Text()
	return err == nil && (!strings.Contains(role, "role:slave") || strings.Contains(role, "master_link_status:up"))
}

// MasterOf returns the server that serves a slot now, as the first that answers
// says; nil where none does.
func (c *RedisCluster) MasterOf(t testing.TB, slot int) *RedisServer {
	t.Helper()
	for _, s := range c.Servers {
		spans, err := s.do("cluster", "slots").Slice()
		if err != nil {
			continue
		}
		for _, span := range spans {
			fields := span.([]any) // first, last, the master, its replicas
			if master := fields[2].([]any); fields[0].(int64) <= int64(slot) && int64(slot) <= fields[1].(int64) {
				return c.at(fmt.Sprintf("%v:%v", master[0], master[1]))
			}
		}
	}
	return nil
}

// MasterOfKey returns the server that serves a key now.
func (c *RedisCluster) MasterOfKey(t testing.TB, key string) *RedisServer {
	t.Helper()
	slot, err := c.Servers[0].do("cluster", "keyslot", key).Int()
	if err != nil {
		t.Fatalf("asking for the slot of a key: %v", err)
	}
	return c.MasterOf(t, slot)
}

// ReplicaOf returns a replica of a master, as that one says; nil where it has none.
func (c *RedisCluster) ReplicaOf(t testing.TB, master *RedisServer) *RedisServer {
	t.Helper()
	lines, err := master.do("cluster", "replicas", c.ID(t, master)).StringSlice()
	if err != nil {
		t.Fatalf("listing the replicas of %s: %v", master.Addr, err)
	}
	for _, line := range lines {
		if fields := strings.Fields(line); len(fields) > 1 {
			addr, _, _ := strings.Cut(fields[1], "@")
			return c.at(addr)
		}
	}
	return nil
}

// Failover makes a replica the master in good order, and waits until it is.
func (c *RedisCluster) Failover(t testing.TB, replica *RedisServer) {
	t.Helper()
	replica.must(t, "cluster", "failover")
	until(t, "the replica is the master", func() bool {
		text, err := replica.do("info", "replication").Text()
		return err == nil && strings.Contains(text, "role:master")
	})
}

// Move gives a slot with its keys to another master, the way that redis-cli does:
// while it goes on, both serve it.
func (c *RedisCluster) Move(t testing.TB, slot int, to *RedisServer) {
	t.Helper()
	from := c.MasterOf(t, slot)
	c.BeginMove(t, slot, to)
	host, port, _ := net.SplitHostPort(to.Addr)
	keys, err := from.do("cluster", "getkeysinslot", slot, 1000).StringSlice()
	if err != nil {
		t.Fatalf("listing the keys of a slot: %v", err)
	}
	for _, key := range keys {
		from.must(t, "migrate", host, port, key, 0, 5000)
	}
	id := c.ID(t, to)
	to.must(t, "cluster", "setslot", slot, "node", id)
	from.must(t, "cluster", "setslot", slot, "node", id)
}

// BeginMove begins to give a slot to another master, and leaves its keys where
// they are.
func (c *RedisCluster) BeginMove(t testing.TB, slot int, to *RedisServer) {
	t.Helper()
	from := c.MasterOf(t, slot)
	to.must(t, "cluster", "setslot", slot, "importing", c.ID(t, from))
	from.must(t, "cluster", "setslot", slot, "migrating", c.ID(t, to))
}

func (c *RedisCluster) at(addr string) *RedisServer {
	for _, s := range c.Servers {
		if s.Addr == addr {
			return s
		}
	}
	return nil
}

// until waits for what takes servers a while. Sentinels and cluster nodes that a busy
// machine has held up wait half a minute before they trust their clocks again, and may
// do so more than once.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// do runs one command over a connection of its own.
func (s *RedisServer) do(command ...any) *redis.Cmd {
	client := s.client()
	defer client.Close()
	return client.Do(context.Background(), command...)
}

// must is do for what has to succeed.
func (s *RedisServer) must(t testing.TB, command ...any) any {
	t.Helper()
	reply, err := s.do(command...).Result()
	if err != nil {
		t.Fatalf("%v of %s: %v", command, s.Addr, err)
	}
	return reply
}

// argument returns the value of one of the arguments.
func (s *RedisServer) argument(name string) string {
	for i, arg := range s.args {
		if arg == name && i+1 < len(s.args) {
			return s.args[i+1]
		}
	}
	return ""
}
