package kafka

import (
	"crypto/tls"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestTriggerHearsEveryPartition refreshes when it begins to listen, and for each
// message, on whichever partition, also one that is new.
func TestTriggerHearsEveryPartition(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := producer(t, cluster)
	produce(t, client, 0) // before; nobody reads it
	r := run(t, &Trigger{Brokers: cluster.ListenAddrs(), Topic: topic}).listening(t)
	for partition := range int32(3) {
		before := r.refreshes.Load()
		produce(t, client, partition)
		within(t, "a refresh", func() bool { return r.refreshes.Load() > before })
	}
	require.LessOrEqual(t, r.refreshes.Load(), int64(4))
	require.Contains(t, r.text(), "listening for changes of rules")
	require.Empty(t, r.warnings())
}

// TestTriggerTwoGateways lets each see every message.
func TestTriggerTwoGateways(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := producer(t, cluster)
	a := run(t, &Trigger{Brokers: cluster.ListenAddrs()[:1], Topic: topic}).listening(t)
	b := run(t, &Trigger{Brokers: cluster.ListenAddrs()[1:], Topic: topic}).listening(t)
	produce(t, client, 1)
	within(t, "both hear", func() bool { return a.refreshes.Load() == 2 && b.refreshes.Load() == 2 })
}

// TestTriggerStorm hears a thousand messages and does not fall behind.
func TestTriggerStorm(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := producer(t, cluster)
	r := run(t, &Trigger{Brokers: cluster.ListenAddrs(), Topic: topic}).listening(t)
	for i := range int32(1000) {
		produce(t, client, i%3)
	}
	before := r.refreshes.Load()
	produce(t, client, 0)
	within(t, "a refresh after the last", func() bool { return r.refreshes.Load() > before })
}

// TestTriggerBrokerGoneAndBack says so once, goes on trying, and refreshes when it
// is back, because it missed what came in between; also where the topic is another
// one of the same name.
func TestTriggerBrokerGoneAndBack(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(servertest.FreeAddr(t))
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	start := func() *kfake.Cluster {
		return newCluster(t, kfake.NumBrokers(1), kfake.Ports(number))
	}
	r := run(t, &Trigger{Brokers: []string{"127.0.0.1:" + port}, Topic: topic})
	within(t, "a warning", func() bool { return len(r.warnings()) == 1 })
	require.Equal(t, []string{"connection refused"}, r.warnings())
	require.Zero(t, r.refreshes.Load())

	cluster := start()
	r.listening(t)
	for round := range 2 {
		cluster.Close()
		within(t, "another warning", func() bool { return len(r.warnings()) == 2+round })
		require.False(t, r.Connected())
		before := r.refreshes.Load()
		cluster = start()
		within(t, "listening again", r.Connected)
		within(t, "a refresh", func() bool { return r.refreshes.Load() > before })
		client, heard := producer(t, cluster), r.refreshes.Load()
		produce(t, client, 2)
		within(t, "a message is heard", func() bool { return r.refreshes.Load() > heard })
		heard = r.refreshes.Load()
		produce(t, client, 1)
		within(t, "and the next one", func() bool { return r.refreshes.Load() > heard })
	}
	require.Len(t, r.warnings(), 3)
}

// TestTriggerWithoutTopic says what is missing, and begins when it is there.
func TestTriggerWithoutTopic(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	r := run(t, &Trigger{Brokers: cluster.ListenAddrs(), Topic: "later"})
	within(t, "a warning", func() bool { return len(r.warnings()) > 0 })
	require.Equal(t, []string{"UNKNOWN_TOPIC_OR_PARTITION"}, r.warnings())
	admin := kadm.NewClient(producer(t, cluster))
	_, err := admin.CreateTopic(t.Context(), 1, 1, nil, "later")
	require.NoError(t, err)
	r.listening(t)
}

// TestTriggerNewPartition hears what is sent to a partition before it was known.
func TestTriggerNewPartition(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	r := run(t, &Trigger{Brokers: cluster.ListenAddrs(), Topic: topic}).listening(t)
	client := producer(t, cluster)
	_, err := kadm.NewClient(client).CreatePartitions(t.Context(), 1, topic)
	require.NoError(t, err)
	within(t, "the partition can be written to", func() bool {
		return client.ProduceSync(t.Context(), record(3)).FirstErr() == nil
	})
	require.Eventually(t, func() bool { return r.refreshes.Load() == 2 }, 2*metadataAge, 10*time.Millisecond)
}

// TestTriggerProvesWhoItIs talks TLS, presents a certificate, and has a user.
func TestTriggerProvesWhoItIs(t *testing.T) {
	t.Parallel()
	certificate := servertest.NewCertificate(t)
	pair, err := tls.LoadX509KeyPair(certificate.CertFile, certificate.KeyFile)
	require.NoError(t, err)
	withTLS := kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	const hungUp = "the broker hung up: check the user, the password and tls"
	good := &TLS{CAFile: certificate.CertFile, CertFile: certificate.CertFile, KeyFile: certificate.KeyFile}
	for name, test := range map[string]struct {
		cluster kfake.Opt
		trigger *Trigger
		reason  string
	}{
		"plain":         {kfake.Superuser("PLAIN", "bob", "secret"), &Trigger{Username: "bob", Password: "secret", SASL: saslPlain}, ""},
		"scram-sha-256": {kfake.Superuser("SCRAM-SHA-256", "bob", "secret"), &Trigger{Username: "bob", Password: "secret", SASL: saslSCRAM256}, ""},
		"scram-sha-512": {kfake.Superuser("SCRAM-SHA-512", "bob", "secret"), &Trigger{Username: "bob", Password: "secret"}, ""},
		"wrong":         {kfake.Superuser("PLAIN", "bob", "secret"), &Trigger{Username: "bob", Password: "not the secret", SASL: saslPlain}, hungUp},
		"wrong scram":   {kfake.Superuser("SCRAM-SHA-512", "bob", "secret"), &Trigger{Username: "bob", Password: "not the secret"}, hungUp},
		"no user":       {kfake.Superuser("PLAIN", "bob", "secret"), &Trigger{}, hungUp},
		"tls":           {withTLS, &Trigger{TLS: good}, ""},
		"no tls":        {withTLS, &Trigger{}, hungUp},
		"other ca":      {withTLS, &Trigger{TLS: &TLS{CAFile: servertest.NewCertificate(t).CertFile}}, "the broker's certificate is not accepted"},
		"other name":    {withTLS, &Trigger{TLS: &TLS{CAFile: certificate.CertFile, ServerName: "kafka"}}, "the broker's certificate is not accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := []kfake.Opt{test.cluster}
			if test.trigger.Username != "" || name == "no user" {
				options = append(options, kfake.EnableSASL())
			}
			test.trigger.Brokers, test.trigger.Topic = newCluster(t, options...).ListenAddrs(), topic
			r := run(t, test.trigger)
			if test.reason == "" {
				r.listening(t)
			} else {
				within(t, "a warning", func() bool { return len(r.warnings()) > 0 })
				require.Equal(t, []string{test.reason}, r.warnings())
			}
			require.NotContains(t, r.text(), "secret")
			require.NotContains(t, r.text(), "bob")
		})
	}
}

// TestTriggerLeaksNothing ends with its context, whatever it is about.
func TestTriggerLeaksNothing(t *testing.T) {
	cluster := newCluster(t)
	before := goleak.IgnoreCurrent()
	for range 3 {
		run(t, &Trigger{Brokers: cluster.ListenAddrs(), Topic: topic}).listening(t).stop()
		r := run(t, &Trigger{Brokers: []string{servertest.FreeAddr(t)}, Topic: topic})
		r.stop()
		require.False(t, r.Connected())
	}
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
}
