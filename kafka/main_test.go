package kafka

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// asCaddy in the environment makes the test binary Caddy, so that tests run
// real gateways, each a process of its own.
const asCaddy = "RATELIMIT_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// topic is the topic of the tests; it has three partitions.
const topic = "rate-limit-rules"

// newCluster starts a Kafka of two brokers that ends with the test.
func newCluster(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(3, topic)}, options...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

// producer sends messages to the partitions that they name.
func producer(t testing.TB, cluster *kfake.Cluster) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func record(partition int32) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte("changed")}
}

func produce(t testing.TB, client *kgo.Client, partition int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, client.ProduceSync(ctx, record(partition)).FirstErr())
}

// running is a trigger that runs, who counts its refreshes, and its log.
type running struct {
	*Trigger
	refreshes atomic.Int64
	log       *observer.ObservedLogs
	stop      func()
}

// run provisions a trigger and runs it until the test ends.
func run(t testing.TB, trigger *Trigger) *running {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	require.NoError(t, trigger.Provision(ctx))
	core, log := observer.New(zapcore.DebugLevel)
	trigger.logger = zap.New(core)
	trigger.timing = timing{fetchWait: 100 * time.Millisecond, patience: 4 * time.Second, check: 50 * time.Millisecond}
	r := &running{Trigger: trigger, log: log}
	life, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		trigger.Run(life, func() { r.refreshes.Add(1) })
	}()
	r.stop = func() {
		end()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Error("the trigger does not end")
		}
	}
	t.Cleanup(r.stop)
	return r
}

// listening waits until messages arrive.
func (r *running) listening(t testing.TB) *running {
	t.Helper()
	within(t, "listening", func() bool { return r.Connected() && r.refreshes.Load() > 0 })
	return r
}

// warnings returns the reasons of the warnings so far.
func (r *running) warnings() (reasons []string) {
	for _, entry := range r.log.FilterLevelExact(zapcore.WarnLevel).All() {
		reasons = append(reasons, entry.ContextMap()["reason"].(string))
	}
	return reasons
}

// text is all that was logged.
func (r *running) text() string {
	var all strings.Builder
	for _, entry := range r.log.All() {
		all.WriteString(entry.Message)
		for _, field := range entry.Context {
			all.WriteString(" " + field.String)
		}
	}
	return all.String()
}

func within(t testing.TB, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 20*time.Second, 5*time.Millisecond, what)
}
