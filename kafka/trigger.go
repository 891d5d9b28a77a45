// Package kafka is an optional module for Caddy: a message on a Kafka topic makes
// the gateways look at the table of rules, as PostgreSQL's NOTIFY does. What the
// message holds does not matter. It is for places where notifications cannot
// arrive, such as behind a pooler, or where changes are announced on Kafka anyway.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit"
	"github.com/caddygate/ratelimit/internal/block"
)

func init() {
	caddy.RegisterModule(new(Trigger))
}

// Trigger hears on a Kafka topic that the table of rules may have changed. Every
// gateway reads all partitions from their end on, without a consumer group, so
// that each sees every message and nothing is kept in Kafka for it. While no broker
// can be reached it goes on trying, and the rules are polled as always.
type Trigger struct {
	// Where Kafka is: `host:port` of some of the brokers; several may stand in one
	// text, with commas between them. The port is 9092 where none is named. Required.
	Brokers []string `json:"brokers,omitempty"`

	// The topic of the messages. Required.
	Topic string `json:"topic,omitempty"`

	// The user to authenticate as (SASL). Default: none.
	Username string `json:"username,omitempty"`

	// The user's password. Required where there is a user.
	Password string `json:"password,omitempty"`

	// How the password is proved: `plain`, which sends it, `scram-sha-256` or
	// `scram-sha-512`. Default: `scram-sha-512`.
	SASL string `json:"sasl,omitempty"`

	// How connections are encrypted. Default: not at all.
	TLS *TLS `json:"tls,omitempty"`

	logger    *zap.Logger
	options   []kgo.Opt
	timing    timing
	connected atomic.Bool
}

// CaddyModule returns the module's ID and how to make one.
func (*Trigger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "rate_limit.triggers.kafka", New: func() caddy.Module { return new(Trigger) }}
}

// Provision checks the settings and reads the certificates. It opens no connection.
func (t *Trigger) Provision(ctx caddy.Context) error {
	t.logger = ctx.Logger()
	if err := t.expand(); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	t.timing = defaultTiming()
	var err error
	if t.options, err = t.clientOptions(); err != nil {
		return err
	}
	if t.Username != "" && t.TLS == nil && t.SASL == saslPlain {
		t.logger.Warn("the password is sent unencrypted: without tls, choose scram-sha-512")
	}
	if err := kgo.ValidateOpts(t.options...); err != nil {
		return fmt.Errorf("checking the settings: %w", err)
	}
	return nil
}

// Run hears of changes until ctx ends.
func (t *Trigger) Run(ctx context.Context, refresh func()) {
	contact := newContact(t, refresh)
	client, err := kgo.NewClient(append(slices.Clone(t.options),
		// Existing partitions are read from their end, later ones from their start.
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(time.Now().UnixMilli())),
		kgo.FetchMaxWait(t.timing.fetchWait),
		kgo.WithHooks(contact),
	)...)
	if err != nil {
		// Provision has checked the same options.
		t.logger.Error("Kafka cannot be used, the rules are polled without it", zap.Error(err))
		<-ctx.Done()
		return
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		contact.watch(ctx, client)
	}()
	for ctx.Err() == nil {
		t.poll(ctx, client, contact, refresh)
	}
	client.Close()
	<-watched
}

// Connected reports whether messages arrive.
func (t *Trigger) Connected() bool { return t.connected.Load() }

// poll waits for messages once.
func (t *Trigger) poll(ctx context.Context, client *kgo.Client, contact *contact, refresh func()) {
	fetches := client.PollFetches(ctx)
	if ctx.Err() != nil {
		return
	}
	failed, recreated := false, false
	fetches.EachError(func(_ string, _ int32, err error) {
		// Lost data is no failure: the partition is read again from where it was
		// when this client began.
		if _, lost := errors.AsType[*kgo.ErrDataLoss](err); lost {
			refresh()
			return
		}
		failed = true
		recreated = recreated || errors.Is(err, kerr.UnknownTopicID)
		contact.refused(err)
	})
	if fetches.NumRecords() > 0 {
		refresh()
	}
	if recreated {
		// The client holds on to a topic by its id, which a new one of the same
		// name does not have.
		client.PurgeTopicsFromClient(t.Topic)
		client.AddConsumeTopics(t.Topic)
	}
	if failed {
		pause(ctx, t.timing.check)
	}
}

// pause waits, but no longer than ctx lasts.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// expand replaces the placeholders in the texts. One that is unknown or empty is
// an error, which holds nothing of the text but the placeholder: it may be a secret.
func (t *Trigger) expand() error {
	texts := map[string]*string{"topic": &t.Topic, "username": &t.Username, "password": &t.Password}
	for i := range t.Brokers {
		texts[fmt.Sprintf("brokers[%d]", i)] = &t.Brokers[i]
	}
	if t.TLS != nil {
		texts["tls.ca_file"], texts["tls.cert_file"] = &t.TLS.CAFile, &t.TLS.CertFile
		texts["tls.key_file"], texts["tls.server_name"] = &t.TLS.KeyFile, &t.TLS.ServerName
	}
	for field, text := range texts {
		expanded, err := block.Expand(*text)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		*text = expanded
	}
	t.Brokers = strings.Split(strings.Join(t.Brokers, ","), ",")
	if len(t.Brokers) == 1 && t.Brokers[0] == "" {
		t.Brokers = nil
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner = (*Trigger)(nil)
	_ ratelimit.Trigger = (*Trigger)(nil)
)
