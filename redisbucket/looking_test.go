package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestLooksAreFew: while a master is gone for long, the others are not asked for the
// slots at every failure, however many requests there are.
func TestLooksAreFew(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	c.cluster.Servers[0].Kill(t)
	looks := func() int {
		return c.cluster.Servers[1].CommandCalls(t, "cluster|slots") + c.cluster.Servers[2].CommandCalls(t, "cluster|slots")
	}
	names := tenants(20)
	r := rule(t, 1_000_000, 1)
	asking := func(d time.Duration) {
		for began := time.Now(); time.Since(began) < d; time.Sleep(5 * time.Millisecond) {
			for _, name := range names {
				_, _ = c.Take(t.Context(), of(r, name))
			}
		}
	}
	asking(2 * time.Second)
	before, began := looks(), time.Now()
	asking(2 * time.Second)
	// Each look may ask both, where the first one is slow to answer.
	require.LessOrEqual(t, looks()-before, 2*(2+int(time.Since(began)/lookSlowly)))
}

// TestDoubtIsLookedIntoSoon: the first doubt after a quiet time is looked into at
// once, later ones less and less often.
func TestDoubtIsLookedIntoSoon(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	began := time.Now()
	looks := func() (sum int) {
		for _, server := range c.cluster.Servers {
			sum += server.CommandCalls(t, "cluster|slots")
		}
		return sum
	}
	first := looks()
	c.client.doubt()
	require.Eventually(t, func() bool { return looks() > first }, lookEvery/2, time.Millisecond)
	for time.Since(began) < time.Second {
		c.client.doubt()
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, looks()-first, 3*(6+int(time.Since(began)/lookSlowly)))
}

// TestUncoveredSlots: what nobody serves is not decided, and is looked for until
// somebody does. The other tenants notice nothing.
func TestUncoveredSlots(t *testing.T) {
	t.Parallel()
	c := onCluster(t, servertest.ClusterOptions{})
	slot := int(slotOf([]byte("{t1}")))
	owner := c.cluster.MasterOf(t, slot)
	for _, client := range c.clients {
		require.NoError(t, client.Do(t.Context(), "cluster", "delslots", slot).Err())
	}
	r := rule(t, 100, 1)
	require.Eventually(t, func() bool {
		_, err := c.Take(t.Context(), of(r, "t1"))
		return errors.Is(err, errUnserved)
	}, lookEvery/2, time.Millisecond)
	require.Empty(t, c.undecided(t, tenants(20)))
	require.NoError(t, owner.Client(t).Do(t.Context(), "cluster", "addslots", slot).Err())
	require.Eventually(t, func() bool {
		_, err := c.Take(t.Context(), of(r, "t1"))
		return err == nil
	}, lookEvery/2, time.Millisecond, "long before it is asked again anyway")
	require.Equal(t, "closed", c.client.Status().Breaker)
}

// TestSentinelPasswords: that the password of the sentinels is wrong is told, also
// where one of them does not answer at all. Redis' own is not given to them.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	r := rule(t, 10, 1)
	for _, sentinel := range s.Sentinels {
		require.NoError(t, sentinel.Client(t).Do(t.Context(), "acl", "setuser", "default", "resetpass", ">right").Err())
	}
	o := sentinelOptions(s)
	o.SentinelPassword = "right"
	take(t, started(t, o), r)
	s.Sentinels[0].Kill(t)
	for _, password := range []string{"", "wrong"} {
		o.SentinelPassword = password
		seen := &observed{}
		client := seen.start(t, o)
		_, err := quick(New(client, ""), r)
		require.Equal(t, "noauth", Reason(err), password)
		require.Equal(t, "noauth", client.Status().LastReason)
		require.Eventually(t, func() bool { return len(seen.get()) == 1 }, 10*time.Second, time.Millisecond)
		require.Equal(t, []any{Unreached, "noauth"}, []any{seen.get()[0].Kind, seen.get()[0].Detail})
	}
}

// TestMostTelling: of what several servers say, that counts which does not mend
// itself.
func TestMostTelling(t *testing.T) {
	t.Parallel()
	gone, replied := error(&net.OpError{Op: "dial", Err: errors.New("refused")}), error(replyError("WRONGPASS no"))
	for _, errs := range [][]error{{gone}, {gone, replied}, {replied, errUnknownMaster, gone}} {
		want := []error{gone, replied, errUnknownMaster}[len(errs)-1]
		require.Equal(t, want, mostTelling(errs))
	}
}

// TestSentinelThatLies names a server that is a master as well. Those of the
// majority counts, whoever answers first, also when the liar alone is heard of at
// the next look while the master works.
func TestSentinelThatLies(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	other := servertest.Redis(t)
	liar := servertest.FakeRedis(t, nil)
	host, port, err := net.SplitHostPort(other.Addr)
	require.NoError(t, err)
	liar.Answer("SENTINEL", append([]byte("*2\r\n"), append(servertest.BulkReply(host), servertest.BulkReply(port)...)...))
	o := sentinelOptions(s)
	o.URLs = append([]string{"redis://" + liar.Addr}, o.URLs...)
	l := started(t, o)
	for range 5 {
		take(t, l, rule(t, 1_000_000, 1))
		require.Equal(t, s.Servers[0].Addr+"/0", l.client.Status().Nodes[0].Address)
		l.client.nudge()
		time.Sleep(2 * lookAgain)
	}
	require.Positive(t, liar.Calls("SENTINEL"), "it was asked")
	require.Zero(t, other.CommandCalls(t, "evalsha", "eval"))
	for name, reply := range map[string]string{"no list": "+OK\r\n", "one": "*1\r\n$1\r\na\r\n", "no port": "*2\r\n$1\r\na\r\n$0\r\n\r\n", "a word": "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "number": "*2\r\n:1\r\n:2\r\n"} {
		liar.Answer("SENTINEL", []byte(reply))
		_, err := l.client.askMaster(t.Context(), l.client.sentinels()[0])
		require.Equal(t, "reply", Reason(err), name)
	}
}

// TestStartWhileStopping: a Client that is started again while its last user's stop
// still goes on works, whatever it is made of.
func TestStartWhileStopping(t *testing.T) {
	t.Parallel()
	server, cluster := servertest.Redis(t), servertest.Cluster(t, servertest.ClusterOptions{})
	for name, urls := range map[string][]string{"one": {server.URL()}, "cluster": cluster.URLs()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := NewClient(Options{URLs: urls})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			stop := client.Start(nil)
			for range 30 {
				client.Warm(ctx)
				ending := stop
				var wait sync.WaitGroup
				wait.Go(ending)
				wait.Go(func() { stop = client.Start(nil) })
				wait.Wait()
				client.Warm(ctx)
				take(t, New(client, ""), rule(t, 1_000_000, 1))
			}
			stop()
			require.NoError(t, client.Destruct())
		})
	}
}

// TestRedirectsWithoutEnd: a server that sends each request to another address has
// the gateway connect to few of them.
func TestRedirectsWithoutEnd(t *testing.T) {
	t.Parallel()
	fake := servertest.FakeRedis(t, nil)
	host, port, err := net.SplitHostPort(fake.Addr)
	require.NoError(t, err)
	fake.Answer("CLUSTER", fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port))
	l := started(t, Options{URLs: []string{fake.URL()}, Mode: ModeCluster})
	r, most := rule(t, 100, 1), 0
	for i := range 200 {
		fake.AnswerScripts(fmt.Appendf(nil, "-MOVED 1 127.0.0.1:%d\r\n", 1+i))
		req := ask(r)
		req.Deadline = time.Now().Add(realTimeout)
		_, err := l.Take(t.Context(), req)
		require.Error(t, err)
		l.client.mu.Lock()
		most = max(most, len(l.client.nodes))
		l.client.mu.Unlock()
	}
	require.LessOrEqual(t, most, 1+mostStrays)
	require.Greater(t, most, 1, "redirects are followed")
}
