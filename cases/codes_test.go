package cases_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// trouble is a way in which a Redis refuses, made with real means, and how that ends.
type trouble struct {
	reason string
	begin  func(t *testing.T, s *servertest.RedisServer) (end func())
}

// settings sets what CONFIG SET can, and sets it back.
func settings(pairs ...string) func(*testing.T, *servertest.RedisServer) func() {
	return func(t *testing.T, s *servertest.RedisServer) func() {
		client := s.Client(t)
		before := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			old, err := client.ConfigGet(t.Context(), pairs[i]).Result()
			require.NoError(t, err)
			before[pairs[i]] = old[pairs[i]]
			require.NoError(t, client.ConfigSet(t.Context(), pairs[i], pairs[i+1]).Err())
		}
		return func() {
			for name, value := range before {
				require.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
			}
		}
	}
}

// misconf has a snapshot fail, after which Redis refuses writes.
func misconf(t *testing.T, s *servertest.RedisServer) func() {
	client := s.Client(t)
	dir := filepath.Join(t.TempDir(), "gone")
	require.NoError(t, os.Mkdir(dir, 0o700))
	undo := settings("dir", dir, "save", "3600 1")(t, s)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, client.BgSave(t.Context()).Err())
	saved := func(status string) {
		gateway.Eventually(t, 20*time.Second, "the snapshot ends", func() bool {
			info, err := client.InfoMap(t.Context(), "persistence").Result()
			return err == nil && info["Persistence"]["rdb_last_bgsave_status"] == status && info["Persistence"]["rdb_bgsave_in_progress"] == "0"
		})
	}
	saved("err")
	return func() {
		undo()
		require.NoError(t, client.ConfigSet(t.Context(), "save", "").Err())
	}
}

// noAuth asks for a password that the gateway does not have.
func noAuth(t *testing.T, s *servertest.RedisServer) func() {
	client := s.Client(t)
	require.NoError(t, client.ConfigSet(t.Context(), "requirepass", "unknown").Err())
	require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	return func() {
		inside := redis.NewClient(&redis.Options{Addr: s.Addr, Password: "unknown", Protocol: 2})
		defer inside.Close()
		require.NoError(t, inside.ConfigSet(t.Context(), "requirepass", "").Err())
	}
}

// loading restarts the server with so much data that it takes a while to read, in
// the slot of a tenant that it serves.
func loading(tenant string) func(*testing.T, *servertest.RedisServer) func() {
	return func(t *testing.T, s *servertest.RedisServer) func() {
		client := s.Client(t)
		fill := "for i = 1, 3000 do redis.call('SET', KEYS[1] .. i, i) end return 1"
		require.NoError(t, client.Eval(t.Context(), fill, []string{"{" + tenant + "}"}).Err())
		require.NoError(t, client.Save(t.Context()).Err())
		s.RestartSlowly(t)
		return func() {
			gateway.Eventually(t, 60*time.Second, "the data is there", func() bool { return client.Ping(t.Context()).Err() == nil })
			require.NoError(t, client.ConfigSet(t.Context(), "key-load-delay", "0").Err())
		}
	}
}

func readOnly(t *testing.T, s *servertest.RedisServer) func() {
	client := s.Client(t)
	require.NoError(t, client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	return func() { require.NoError(t, client.ReplicaOf(t.Context(), "no", "one").Err()) }
}

func masterDown(t *testing.T, s *servertest.RedisServer) func() {
	undo := settings("replica-serve-stale-data", "no")(t, s)
	promote := readOnly(t, s)
	return func() {
		promote()
		undo()
	}
}

// clusterDown takes one slot from a cluster that has to be whole.
func clusterDown(c *servertest.RedisCluster) func(*testing.T, *servertest.RedisServer) func() {
	return func(t *testing.T, s *servertest.RedisServer) func() {
		client := s.Client(t)
		undo := settings("cluster-require-full-coverage", "yes")(t, s)
		const slot = 0
		require.NoError(t, client.ClusterDelSlots(t.Context(), slot).Err())
		return func() {
			undo()
			if s == c.Servers[0] {
				require.NoError(t, client.ClusterAddSlots(t.Context(), slot).Err())
			}
		}
	}
}

func troubles(tenant string) []trouble {
	return []trouble{
		{"oom", settings("maxmemory", "1")},
		{"misconf", misconf},
		{"noreplicas", settings("min-replicas-to-write", "9")},
		{"loading", loading(tenant)},
		{"noauth", noAuth},
	}
}

// meet goes through the troubles of a server: while one lasts the fallback decides
// for its tenant, the other's is decided by Redis, and afterwards both are.
func meet(t *testing.T, g *gateway.Process, s *servertest.RedisServer, list []trouble, tenant, other string) {
	t.Helper()
	decides := func(tenant string) bool {
		got := g.Get("/", tenant)
		require.Equal(t, 200, got.Status)
		return got.Source() == "redis"
	}
	for _, trouble := range list {
		gateway.Eventually(t, 20*time.Second, "all is well before "+trouble.reason, func() bool { return decides(tenant) && (other == "" || decides(other)) })
		before := g.RedisErrors()[trouble.reason]
		end := trouble.begin(t, s)
		gateway.Eventually(t, 20*time.Second, trouble.reason+" is counted", func() bool {
			decides(tenant)
			return g.RedisErrors()[trouble.reason] > before
		})
		for range 10 {
			require.False(t, decides(tenant), trouble.reason)
			if other != "" {
				require.True(t, decides(other), "%s: the other master decides", trouble.reason)
			}
		}
		end()
		began := time.Now()
		gateway.Eventually(t, 40*time.Second, "Redis decides again after "+trouble.reason, func() bool { return decides(tenant) })
		t.Logf("%-11s healed: Redis decided after %v", trouble.reason, time.Since(began).Round(time.Millisecond))
	}
}

// TestF6Codes has each kind of Redis refuse in every way that it has.
func TestF6Codes(t *testing.T) {
	t.Parallel()
	all := []string{"--enable-protected-configs", "yes"}
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		s := servertest.Redis(t, all...)
		g := gateway.Start(t, onCluster([]string{s.URL()}, ""))
		meet(t, g, s, append(troubles("t1"), trouble{"readonly", readOnly}, trouble{"masterdown", masterDown}), "t1", "")
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := servertest.Cluster(t, servertest.ClusterOptions{Args: all})
		g := gateway.Start(t, onCluster(c.URLs(), ""))
		tenants := map[*servertest.RedisServer]string{}
		for i := 0; len(tenants) < 3; i++ {
			tenant := "t" + strconv.Itoa(i)
			tenants[c.MasterOfKey(t, "{"+tenant+"}")] = tenant
		}
		first := c.Servers[0]
		list := troubles(tenants[first])
		for i := range list {
			if list[i].reason == "loading" {
				list[i].reason = "clusterdown" // which a node says rather, until it has found the others
			}
		}
		meet(t, g, first, append(list, trouble{"clusterdown", clusterDown(c)}), tenants[first], tenants[c.Servers[1]])
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := servertest.Sentinels(t, servertest.SentinelOptions{Args: all})
		g := gateway.Start(t, onSentinels(s))
		meet(t, g, s.Master(), troubles("t1")[:3], "t1", "")
	})
}
