package redisbucket

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// documentedRights returns the command of docs/redis.md that makes a user, which
// is the one after the mark.
func documentedRights(t *testing.T, mark string) []any {
	t.Helper()
	text, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "<!-- rights: "+mark+" -->")
	require.True(t, found, mark)
	_, rest, found = strings.Cut(rest, "\nACL SETUSER gateway ")
	require.True(t, found, mark)
	line, _, _ := strings.Cut(rest, "\n")
	command := []any{"acl", "setuser", "gateway"}
	for word := range strings.FieldsSeq(line) {
		command = append(command, word)
	}
	return command
}

// give makes the user of the documentation on the servers.
func give(t *testing.T, mark string, servers ...*servertest.RedisServer) {
	t.Helper()
	command := documentedRights(t, mark)
	for _, server := range servers {
		require.NoError(t, server.Client(t).Do(t.Context(), command...).Err(), server.Addr)
	}
}

// withUser adds the user of the documentation to URLs.
func withUser(urls []string) []string {
	list := make([]string, len(urls))
	for i, url := range urls {
		list[i] = strings.Replace(url, "://", "://gateway:password@", 1)
	}
	return list
}

// requireAll uses all that a Limiter does, of which nothing may be denied.
func requireAll(t *testing.T, l *Limiter, servers ...*servertest.RedisServer) {
	t.Helper()
	for _, tenant := range tenants(10) {
		for range 3 {
			for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
				req := of(ruleOf(t, algorithm, 2, 0.001), tenant)
				req.Deadline = time.Now().Add(4 * patience)
				d, err := l.Take(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, limit.SourceRedis, d.Source)
				settle(t, l, req.Buckets[0])
			}
		}
		require.NoError(t, l.Reset(t.Context(), limit.Key{Tenant: tenant, Route: "a"}))
	}
	require.Empty(t, l.client.Status().LastReason)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, member := range []string{"aa/1", "aa/2", ""} { // as package fleet does
		_, err := l.client.Eval(ctx, lua.Heartbeat(), []string{"rl:{~instances}", "rl:{~instances}:rules"}, 5000, member, "aa/1")
		require.NoError(t, err)
	}
	for _, server := range servers {
		log, err := server.Client(t).ACLLog(t.Context(), 100).Result()
		require.NoError(t, err)
		for _, entry := range log {
			if entry.Object != "info" { // it is content without
				require.NotEqual(t, "gateway", entry.Username, "%s: %s was denied", server.Addr, entry.Object)
			}
		}
	}
}

// settle gives back what a bucket has granted, and has its ban read.
func settle(t *testing.T, l *Limiter, bucket limit.Bucket) {
	t.Helper()
	bucket.Settles, bucket.Ban, bucket.Cost = true, time.Hour, 1
	ended := make(chan limit.Settled, 1)
	l.Settle(limit.Settlement{
		Bucket: bucket, Source: limit.SourceRedis, Taken: 2, Spent: 1, Granted: time.Now().Add(-time.Millisecond),
		Ended: func(with limit.Settled) { ended <- with },
	})
	require.Empty(t, (<-ended).Lost)
}

func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		server := servertest.Redis(t)
		give(t, "one server", server)
		requireAll(t, started(t, Options{URLs: withUser([]string{server.URL()})}), server)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := servertest.Cluster(t, servertest.ClusterOptions{})
		give(t, "cluster", cluster.Servers...)
		l := started(t, Options{URLs: withUser(cluster.URLs())})
		requireAll(t, l, cluster.Servers...)
		slot := int(slotOf([]byte("{t1}")))
		to := cluster.Servers[0]
		if cluster.MasterOf(t, slot) == to {
			to = cluster.Servers[1]
		}
		cluster.BeginMove(t, slot, to)
		take(t, l, rule(t, 10, 1)) // by ASKING
		require.NoError(t, l.Reset(t.Context(), theKey))
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := servertest.Sentinels(t, servertest.SentinelOptions{})
		give(t, "one server", s.Servers...)
		give(t, "sentinel", s.Sentinels...)
		o := sentinelOptions(s)
		o.URLs, o.SentinelUser, o.SentinelPassword = withUser(o.URLs), "gateway", "password"
		l := started(t, o)
		requireAll(t, l, s.Servers...)
		s.Failover(t)
		untilDecided(t, l, s.Master().Addr)
		for _, sentinel := range s.Sentinels {
			client := sentinel.Client(t)
			require.Eventually(t, func() bool { return subscribers(t, client) == 1 }, 10*time.Second, 10*time.Millisecond, "it is listened to")
		}
	})
}

// subscribers returns how many listen to a sentinel under the documented user.
func subscribers(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	text, err := client.ClientList(t.Context()).Result()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "user=gateway") && strings.Contains(line, " sub=1") {
			n++
		}
	}
	return n
}

// TestTLSEverywhere needs a client certificate of every server.
func TestTLSEverywhere(t *testing.T) {
	t.Parallel()
	withCertificate := func(c servertest.Certificate) TLS {
		return TLS{CAFile: c.CertFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
	}
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := servertest.Cluster(t, servertest.ClusterOptions{TLS: true})
		for _, server := range cluster.Servers {
			require.NoError(t, server.Client(t).ConfigSet(t.Context(), "tls-auth-clients", "yes").Err())
		}
		requireAll(t, started(t, Options{URLs: cluster.URLs(), TLS: withCertificate(cluster.Certificate)}))
		without := started(t, Options{URLs: cluster.URLs(), TLS: TLS{CAFile: cluster.Certificate.CertFile}})
		_, err := quick(without, rule(t, 10, 1))
		require.Error(t, err)
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := servertest.Sentinels(t, servertest.SentinelOptions{TLS: true})
		o := sentinelOptions(s)
		o.TLS = withCertificate(s.Certificate)
		l := started(t, o)
		requireAll(t, l)
		s.Failover(t)
		untilDecided(t, l, s.Master().Addr)
	})
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		server := servertest.RedisTLS(t)
		require.NoError(t, server.Client(t).ConfigSet(t.Context(), "tls-auth-clients", "yes").Err())
		requireAll(t, started(t, Options{URLs: []string{server.URL()}, TLS: withCertificate(server.Certificate)}))
	})
}
