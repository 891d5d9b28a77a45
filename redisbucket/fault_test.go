package redisbucket

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// decisionTimeout is what one decision may wait where a test is about faults.
const decisionTimeout = patience

// proxied is a started Limiter behind a proxy to a private Redis.
type proxied struct {
	*Limiter
	server *servertest.RedisServer
	proxy  *servertest.Proxy
}

func throughProxy(t *testing.T, o Options) *proxied {
	t.Helper()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	o.URL = "redis://" + proxy.Addr()
	p := &proxied{started(t, o), server, proxy}
	p.awaitLanes(t)
	return p
}

// awaitLanes waits until every lane is connected.
func (p *proxied) awaitLanes(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return p.node.Status().Connections == laneCount
	}, 10*time.Second, time.Millisecond)
}

// quick asks for one unit within the decision timeout.
func quick(l limit.Limiter, r limit.Rule) (limit.Decision, error) {
	req := ask(r)
	req.Deadline = time.Now().Add(decisionTimeout)
	return l.Take(context.Background(), req)
}

// quickAtOnce asks n times at once and returns how many were granted, and the
// reasons of the errors.
func quickAtOnce(l limit.Limiter, r limit.Rule, n int) (granted int, reasons map[string]int) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	reasons = make(map[string]int)
	for range n {
		wait.Go(func() {
			d, err := quick(l, r)
			mu.Lock()
			defer mu.Unlock()
			granted += int(d.Granted)
			if err != nil {
				reasons[Reason(err)]++
			}
		})
	}
	wait.Wait()
	return granted, reasons
}

func TestT1Budget(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	slow, silent := servertest.NewProxy(t, server.Addr), servertest.NewProxy(t, server.Addr)
	slow.Set(t, servertest.Fault{ReplyDelay: 200 * time.Millisecond})
	silent.Set(t, servertest.Fault{Silent: true})
	for name, addr := range map[string]string{
		"replies take 200 ms":             slow.Addr(),
		"accepted and never answered":     silent.Addr(),
		"connection attempts are lost":    servertest.BlackHole(t),
		"connection attempts are refused": servertest.FreeAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, err := NewNode(Options{URL: "redis://" + addr})
			require.NoError(t, err)
			stop := node.Start(nil)
			defer stop()
			l := New(node, "")
			for range 3 {
				begin := time.Now()
				req := ask(rule(t, 10, 0.001))
				req.Deadline = begin.Add(5 * time.Millisecond)
				_, err := l.Take(t.Context(), req)
				require.Error(t, err)
				require.Less(t, time.Since(begin), patience)
				t.Logf("%s after %s", Reason(err), time.Since(begin))
			}
			node.Warm(t.Context())
		})
	}
}

func TestT2LostReply(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	take(t, p, rule(t, 10, 0.001))
	require.NoError(t, p.Reset(t.Context(), theKey))
	before := p.server.CommandCalls(t, "eval", "evalsha")
	p.proxy.Set(t, servertest.Fault{CutBeforeReply: []string{"EVAL", "EVALSHA"}})
	_, err := quick(p, rule(t, 10, 0.001))
	require.Equal(t, "connection", Reason(err))
	client := p.server.Client(t)
	require.Equal(t, "9", client.HGet(t.Context(), tokenKey, "tokens").Val())
	require.Equal(t, before+1, p.server.CommandCalls(t, "eval", "evalsha"), "asked once")
}

func TestT3Dialling(t *testing.T) {
	t.Parallel()
	plain, other := servertest.Redis(t), servertest.Redis(t)
	late, slow := servertest.NewProxy(t, plain.Addr), servertest.NewProxy(t, other.Addr)
	late.Set(t, servertest.Fault{ConnectDelay: 10 * time.Millisecond})
	slow.Set(t, servertest.Fault{ReplyDelay: 2 * time.Millisecond})
	secure := servertest.RedisTLS(t)
	certificate := secure.Certificate
	for name, test := range map[string]struct {
		server  *servertest.RedisServer
		options Options
	}{
		"TLS": {secure, Options{URL: secure.URL(), TLS: TLS{CAFile: certificate.CertFile}}},
		"TLS with a client certificate": {
			servertest.RedisTLS(t, "--tls-auth-clients", "no"),
			Options{TLS: TLS{CAFile: certificate.CertFile, CertFile: certificate.CertFile, KeyFile: certificate.KeyFile}},
		},
		"connecting takes 10 ms": {plain, Options{URL: "redis://" + late.Addr()}},
		"replies take 2 ms":      {other, Options{URL: "redis://" + slow.Addr()}},
	} {
		if test.options.URL == "" {
			test.options.URL = test.server.URL()
			test.options.TLS.CAFile = test.server.Certificate.CertFile
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := started(t, test.options)
			r := rule(t, 1_000_000, 1)
			for range 2 {
				require.Eventually(t, func() bool {
					d, err := quick(l, r)
					return err == nil && d.Granted == 1
				}, 20*time.Second, 10*time.Millisecond)
				for range 20 {
					_, err := quick(l, r)
					require.NoError(t, err)
				}
				require.NoError(t, test.server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
			}
		})
	}
}

// TestClientKillCostsAtMostOneAnswer: what cut one connection may have cut all,
// so none is lent again before it has answered.
func TestClientKillCostsAtMostOneAnswer(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	r := rule(t, 1_000_000, 1)
	require.NoError(t, p.server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	failed := 0
	for range 50 {
		if _, err := quick(p, r); err != nil {
			failed++
		}
	}
	require.LessOrEqual(t, failed, 1)
	require.Equal(t, "closed", p.node.Status().Breaker)
}

func TestF1Breaker(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 5, Open: time.Second}})
	r := rule(t, 1000, 0.001)
	calls := func() int { return p.proxy.Commands("EVAL", "EVALSHA") }
	p.proxy.Set(t, servertest.Fault{SilentFor: []string{"EVAL", "EVALSHA"}})
	for range 5 {
		_, err := quick(p, r)
		require.Equal(t, "timeout", Reason(err))
	}
	require.Equal(t, 5, calls())
	require.Equal(t, "open", p.node.Status().Breaker)
	require.Equal(t, "timeout", p.node.Status().LastReason)

	begin := time.Now()
	_, reasons := quickAtOnce(p, r, 100)
	require.Equal(t, map[string]int{"breaker_open": 100}, reasons)
	require.Less(t, time.Since(begin), patience)
	require.Equal(t, 5, calls(), "none while open")

	p.awaitHalfOpen(t)
	p.awaitLanes(t)
	_, reasons = quickAtOnce(p, r, 100)
	require.Equal(t, map[string]int{"breaker_open": 99, "timeout": 1}, reasons)
	require.Equal(t, 6, calls(), "one probe")

	p.proxy.Set(t, servertest.Fault{})
	p.awaitHalfOpen(t)
	p.awaitLanes(t)
	d := take(t, p, r)
	require.Equal(t, int64(1), d.Granted, "the probe needs no handshake")
	granted, reasons := quickAtOnce(p, r, 100)
	require.Empty(t, reasons)
	require.Equal(t, 100, granted)
}

// awaitHalfOpen waits for the open time to end. It is the breaker's own clock,
// which gobreaker does not let a test set.
func (p *proxied) awaitHalfOpen(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return p.node.Status().Breaker == "half-open" }, 20*time.Second, time.Millisecond)
}

// TestBreakerHalf opens it on half of the calls, none of them in a row.
func TestBreakerHalf(t *testing.T) {
	t.Parallel()
	fake := servertest.FakeRedis(t, nil)
	l := started(t, Options{URL: fake.URL(), Breaker: Breaker{Failures: 1000}})
	r := rule(t, 10, 0.001)
	for i := range 20 {
		require.Equal(t, "closed", l.node.Status().Breaker)
		if i%2 == 0 {
			fake.AnswerScripts([]byte("*4\r\n:1\r\n:9\r\n:0\r\n:1\r\n"))
		} else {
			fake.AnswerScripts([]byte("-ERR x\r\n"))
		}
		_, _ = quick(l, r)
	}
	require.Equal(t, "open", l.node.Status().Breaker)
}

func TestBreakerOff(t *testing.T) {
	t.Parallel()
	fake := servertest.FakeRedis(t, []byte("-ERR x\r\n"))
	l := started(t, Options{URL: fake.URL(), Breaker: Breaker{Off: true}})
	for range 30 {
		_, err := quick(l, rule(t, 10, 0.001))
		require.Equal(t, "other", Reason(err))
	}
	require.Equal(t, 30, fake.Calls("EVALSHA"))
	require.Equal(t, "off", l.node.Status().Breaker)
}

func TestF5ErrorShapes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reply, reason string
	}{
		"never":         {"", "timeout"},
		"nil":           {"$-1\r\n", "reply"},
		"nil list":      {"*-1\r\n", "reply"},
		"empty list":    {"*0\r\n", "reply"},
		"one element":   {"*1\r\n:1\r\n", "reply"},
		"one too many":  {"*5\r\n:1\r\n:9\r\n:0\r\n:1\r\n:1\r\n", "reply"},
		"strings":       {"*4\r\n$1\r\n1\r\n$1\r\n9\r\n$1\r\n0\r\n$1\r\n1\r\n", "reply"},
		"nested":        {"*4\r\n*0\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"granted 2":     {"*4\r\n:2\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"granted -1":    {"*4\r\n:-1\r\n:9\r\n:0\r\n:1\r\n", "reply"},
		"remaining 11":  {"*4\r\n:1\r\n:11\r\n:0\r\n:1\r\n", "reply"},
		"remaining -1":  {"*4\r\n:1\r\n:-1\r\n:0\r\n:1\r\n", "reply"},
		"wait too long": {"*4\r\n:1\r\n:9\r\n:9223372036854775807\r\n:1\r\n", "reply"},
		"ERR":           {"-ERR x\r\n", "other"},
		"OK":            {"+OK\r\n", "reply"},
		"integer":       {":1\r\n", "reply"},
		"half a reply":  {"*4\r\n:1\r\n:9", "cut"},
		"garbage":       {"\x16\x03\x01 garbage\r\n", "reply"},
		"huge list":     {"*99999999999\r\n", "timeout"},
		"READONLY":      {"-READONLY You can't write against a read only replica.\r\n", "readonly"},
		"LOADING":       {"-LOADING Redis is loading the dataset in memory\r\n", "loading"},
		"OOM":           {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "oom"},
		"OOM of 6.2":    {"-ERR Error running script (call to f_4e1243bd22c66e76c2ba9eddc1f91394e57f9f83): @user_script:12: @user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.\r\n", "oom"},
		"MISCONF":       {"-MISCONF Redis is configured to save RDB snapshots\r\n", "misconf"},
		"NOAUTH":        {"-NOAUTH Authentication required.\r\n", "noauth"},
		"NOPERM":        {"-NOPERM this user has no permissions\r\n", "noperm"},
		"CLUSTERDOWN":   {"-CLUSTERDOWN Hash slot not served\r\n", "clusterdown"},
		"MASTERDOWN":    {"-MASTERDOWN Link with MASTER is down\r\n", "masterdown"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := servertest.FakeRedis(t, []byte(test.reply))
			if test.reason == "cut" {
				fake.CutAfterScripts()
				test.reason = "connection"
			}
			l := started(t, Options{URL: fake.URL(), Breaker: Breaker{Failures: 2}})
			for range 2 {
				require.Equal(t, "closed", l.node.Status().Breaker)
				d, err := quick(l, rule(t, 10, 0.001))
				require.Equal(t, test.reason, Reason(err), "%v", err)
				require.Zero(t, d)
			}
			require.Equal(t, "open", l.node.Status().Breaker, "failures are counted")
			require.Equal(t, 2, fake.Calls("EVAL", "EVALSHA"), "asked once each")
		})
	}
}

func TestMovedIsNoFailure(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n", "-WRONGTYPE Operation\r\n", "-NOSCRIPT No matching script\r\n"} {
		fake := servertest.FakeRedis(t, []byte(reply))
		l := started(t, Options{URL: fake.URL(), Breaker: Breaker{Failures: 1}})
		for range 3 {
			_, err := quick(l, rule(t, 10, 0.001))
			require.Error(t, err)
		}
		require.Equal(t, "closed", l.node.Status().Breaker, reply)
	}
}

func TestF6ReadOnly(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	successor := servertest.Redis(t)
	r := rule(t, 1000, 0.001)
	take(t, p, r)
	host, port, _ := strings.Cut(successor.Addr, ":")
	require.NoError(t, p.server.Client(t).ReplicaOf(t.Context(), host, port).Err())
	p.proxy.SetUpstream(successor.Addr)
	reasons := map[string]bool{}
	begin := time.Now()
	require.Eventually(t, func() bool {
		d, err := quick(p, r)
		reasons[Reason(err)] = true
		return err == nil && d.Granted == 1
	}, 20*DefaultBreakerOpen, 10*time.Millisecond)
	t.Logf("decided by the new master after %s, after %v", time.Since(begin), reasons)
	exists, err := successor.Client(t).Exists(t.Context(), tokenKey).Result()
	require.NoError(t, err)
	require.Equal(t, int64(1), exists)
	for range 20 {
		take(t, p, r)
	}
}

func TestF7NoScript(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	l := started(t, Options{URL: server.URL()})
	r := rule(t, 100, 0.001)
	require.Equal(t, int64(99), take(t, l, r).First.Remaining)
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	require.Equal(t, int64(98), take(t, l, r).First.Remaining)
	require.Empty(t, l.node.Status().LastReason, "no failure so far")
	server.Restart(t)
	var d limit.Decision
	require.Eventually(t, func() bool {
		var err error
		d, err = quick(l, r)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, int64(97), d.First.Remaining)
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	granted, reasons := quickAtOnce(l, r, 50)
	require.Empty(t, reasons)
	require.Equal(t, 50, granted)
	require.Equal(t, "closed", l.node.Status().Breaker)
}

func TestF8FullRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--maxmemory-policy", "noeviction")
	l := started(t, Options{URL: server.URL()})
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := quick(l, rule(t, 10, 0.001))
	require.Equal(t, "oom", Reason(err), "%v", err)
}

func TestF8Policy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want []Event
	}{
		"evicting":   {[]string{"--maxmemory-policy", "allkeys-lru"}, []Event{{Kind: EvictingPolicy, Detail: "allkeys-lru"}}},
		"noeviction": {[]string{"--maxmemory-policy", "noeviction"}, nil},
		"no right":   {[]string{"--maxmemory-policy", "allkeys-lru", "--user", "default on nopass ~* +@all -info -config"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observed := &observed{}
			node := observed.start(t, Options{URL: policyServer(t, test.args)})
			require.Eventually(t, func() bool {
				return node.Status().Connections == laneCount && len(observed.get()) == len(test.want)
			}, 10*time.Second, time.Millisecond)
			for i, event := range observed.get() {
				require.Equal(t, test.want[i].Kind, event.Kind)
				require.Equal(t, test.want[i].Detail, event.Detail)
			}
			require.Empty(t, node.Status().LastReason)
		})
	}
}

// policyServer starts a Redis whose user may be barred from INFO: the helper's
// own readiness check needs it, so the right is taken away afterwards.
func policyServer(t *testing.T, args []string) string {
	t.Helper()
	if len(args) < 4 {
		return servertest.Redis(t, args...).URL()
	}
	server := servertest.Redis(t, args[:2]...)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "default", "-info", "-config").Err())
	return server.URL()
}

func TestF9StartInAnOutage(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"refused": servertest.FreeAddr(t), "black hole": servertest.BlackHole(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			node, err := NewNode(Options{URL: "redis://" + addr})
			require.NoError(t, err)
			stop := node.Start(nil)
			_, err = quick(New(node, ""), rule(t, 10, 0.001))
			require.Error(t, err)
			node.Warm(t.Context())
			stop()
			require.NoError(t, node.Destruct())
			require.Less(t, time.Since(begin), 20*time.Second)
		})
	}
}

// TestRecovery starts while Redis is away and needs nothing to find it later.
func TestRecovery(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	proxy.Set(t, servertest.Fault{Refuse: true})
	observed := &observed{}
	l := New(observed.start(t, Options{URL: "redis://" + proxy.Addr()}), "")
	r := rule(t, 1000, 0.001)
	require.Eventually(t, func() bool {
		_, err := quick(l, r)
		return Reason(err) == "breaker_open"
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, "connection", l.node.Status().LastReason)
	proxy.Set(t, servertest.Fault{})
	require.Eventually(t, func() bool {
		_, err := quick(l, r)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(observed.get()) == 2 }, 10*time.Second, time.Millisecond)
	events := observed.get()
	require.Equal(t, BreakerOpened, events[0].Kind)
	require.Equal(t, "connection", events[0].Detail)
	require.Equal(t, BreakerClosed, events[1].Kind)
	require.Equal(t, proxy.Addr()+"/0", events[1].Address)
}

func TestVersionTooOld(t *testing.T) {
	t.Parallel()
	hello := func(server, version string) []byte {
		return append([]byte("*4\r\n$6\r\nserver\r\n"+string(servertest.BulkReply(server))+"$7\r\nversion\r\n"), servertest.BulkReply(version)...)
	}
	for name, test := range map[string]struct {
		hello, info []byte
		refused     string
	}{
		"Redis 6.0":         {hello("redis", "6.0.16"), nil, "6.0.16"},
		"Redis 6.2":         {hello("redis", "6.2.0"), nil, ""},
		"Redis 10":          {hello("redis", "10.0.0"), nil, ""},
		"Valkey":            {hello("valkey", "8.1.0"), nil, ""},
		"another one":       {hello("other", "1.0.0"), nil, ""},
		"Redis 5":           {[]byte("-ERR unknown command `HELLO`\r\n"), servertest.BulkReply("# Server\r\nredis_version:5.0.14\r\n"), "5.0.14"},
		"no HELLO, no INFO": {[]byte("-ERR unknown command `HELLO`\r\n"), []byte("-NOPERM no\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := servertest.FakeRedis(t, []byte("*4\r\n:1\r\n:9\r\n:0\r\n:1\r\n"))
			fake.Answer("HELLO", test.hello)
			if test.info != nil {
				fake.Answer("INFO", test.info)
			}
			observed := &observed{}
			node := observed.start(t, Options{URL: fake.URL()})
			_, err := quick(New(node, ""), rule(t, 10, 0.001))
			if test.refused == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, "version", Reason(err))
			require.ErrorContains(t, err, test.refused)
			require.Eventually(t, func() bool { return len(observed.get()) > 0 }, 10*time.Second, time.Millisecond)
			require.Equal(t, VersionTooOld, observed.get()[0].Kind)
			require.Equal(t, test.refused, observed.get()[0].Detail)
		})
	}
}

// observed collects a node's events.
type observed struct {
	mu     sync.Mutex
	events []Event
}

func (o *observed) start(t *testing.T, options Options) *Node {
	t.Helper()
	node, err := NewNode(options)
	require.NoError(t, err)
	stop := node.Start(func(e Event) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events = append(o.events, e)
	})
	t.Cleanup(stop)
	node.Warm(t.Context())
	return node
}

func (o *observed) get() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Event(nil), o.events...)
}

// TestWaitIsNoFailure asks more at once than there are lanes, on a slow Redis.
func TestWaitIsNoFailure(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 1}})
	take(t, p, rule(t, 1000, 0.001))
	p.proxy.Set(t, servertest.Fault{ReplyDelay: 4 * decisionTimeout / 5})
	granted, reasons := quickAtOnce(p, rule(t, 1000, 0.001), 3*laneCount)
	t.Logf("%d granted, %v", granted, reasons)
	require.Positive(t, reasons["wait"])
	require.LessOrEqual(t, p.proxy.Commands("EVALSHA"), laneCount+1, "what waited too long is not sent")
}

func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 1}})
	r := rule(t, 1000, 0.001)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Take(canceled, ask(r))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "canceled", Reason(err))

	p.proxy.Set(t, servertest.Fault{SilentFor: []string{"EVAL", "EVALSHA"}})
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = p.Take(short, ask(r))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "closed", p.node.Status().Breaker, "a caller's haste is not Redis' fault")

	var calls atomic.Int32
	var wait sync.WaitGroup
	leaving, leave := context.WithCancel(t.Context())
	for range 3 * laneCount {
		wait.Go(func() {
			req := ask(r)
			req.Deadline = time.Now().Add(time.Minute)
			if _, err := p.Take(leaving, req); Reason(err) == "canceled" {
				calls.Add(1)
			}
		})
	}
	time.AfterFunc(20*time.Millisecond, leave)
	wait.Wait()
	require.Positive(t, calls.Load())
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	node, err := NewNode(Options{URL: server.URL()})
	require.NoError(t, err)
	l, r := New(node, ""), rule(t, 10, 0.001)
	reason := func() string {
		_, err := l.Take(t.Context(), ask(r))
		return Reason(err)
	}
	require.Equal(t, "not_started", reason())
	require.Equal(t, "not_started", Reason(l.Reset(t.Context(), theKey)))
	node.Warm(t.Context())
	first, second := node.Start(nil), node.Start(nil)
	node.Warm(t.Context())
	require.Empty(t, reason())
	first()
	first()
	require.Empty(t, reason(), "someone else still uses it")
	second()
	require.Equal(t, "not_started", reason())
	require.Zero(t, node.Status().Connections)
	third := node.Start(nil)
	node.Warm(t.Context())
	require.Empty(t, reason())
	require.Equal(t, server.Addr+"/0", node.Status().Address)
	require.NoError(t, node.Destruct())
	require.NoError(t, node.Destruct())
	require.Equal(t, "closed", reason())
	third()
	node.Start(nil)()
	require.Equal(t, "closed", reason())
	require.Eventually(t, func() bool {
		clients, err := server.Client(t).ClientList(t.Context()).Result()
		return err == nil && strings.Count(clients, "\n") == 1
	}, 10*time.Second, 10*time.Millisecond, "no connection is left but the asking one")
}

// TestStopWhileAsking stops under traffic.
func TestStopWhileAsking(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	node, err := NewNode(Options{URL: server.URL()})
	require.NoError(t, err)
	l, r := New(node, ""), rule(t, 10, 0.001)
	var wait sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = quick(l, r)
				}
			}
		})
	}
	for range 10 {
		stop := node.Start(nil)
		node.Warm(t.Context())
		stop()
	}
	require.NoError(t, node.Destruct())
	close(done)
	wait.Wait()
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	l := started(t, Options{URL: servertest.FakeRedis(t, nil).URL()})
	good := ask(rule(t, 10, 0.001))
	for _, req := range []limit.Request{{}, {Buckets: good.Buckets}, {Buckets: good.Buckets, Cost: 1, Count: -1}} {
		_, err := l.Take(t.Context(), req)
		require.Error(t, err)
	}
	require.Equal(t, "closed", l.node.Status().Breaker)
}

func TestPasswordAndUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := servertest.Redis(t, "--requirepass", "s3cret", "--unixsocket", dir+"/s")
	l := started(t, Options{URL: "redis://:s3cret@" + server.Addr})
	take(t, l, rule(t, 10, 0.001))
	unix := started(t, Options{URL: "unix://:s3cret@" + dir + "/s?db=1"})
	require.Equal(t, int64(9), take(t, unix, rule(t, 10, 0.001)).First.Remaining)
	for _, password := range []string{"", ":wrong@"} {
		wrong := started(t, Options{URL: "redis://" + password + server.Addr})
		_, err := quick(wrong, rule(t, 10, 0.001))
		require.Equal(t, "noauth", Reason(err), "%v", err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// TestLeastRights runs with the rights that the script and the connection need.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	rights := "acl setuser limiter on >pw resetkeys ~rl:* nocommands +eval +evalsha +ping +time +del +pttl +pexpire +hmget +hset " +
		"+zadd +zcard +zcount +zrem +zrangebyscore +zrevrange +zremrangebyrank"
	var command []any
	for _, word := range strings.Fields(rights) {
		command = append(command, word)
	}
	require.NoError(t, server.Client(t).Do(t.Context(), command...).Err())
	l := started(t, Options{URL: "redis://limiter:pw@" + server.Addr})
	for range 3 {
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			take(t, l, ruleOf(t, algorithm, 2, 0.001))
		}
	}
	require.NoError(t, l.Reset(t.Context(), theKey))
	require.Empty(t, l.node.Status().LastReason)
}

// TestO2ScriptCache: one text whatever the rules are.
func TestO2ScriptCache(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for i := range 1000 {
		algorithm := limit.TokenBucket + limit.Algorithm(i%3)
		take(t, b, ruleOf(t, algorithm, int64(i+1), 0.5+float64(i)))
	}
	text, err := b.redis.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	_, rest, found := strings.Cut(text, "number_of_cached_scripts:")
	require.True(t, found)
	number, _, _ := strings.Cut(rest, "\r")
	require.LessOrEqual(t, mustInt(t, number), int64(2))
}
