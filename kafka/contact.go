package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// timing is what tests set to other values.
type timing struct {
	// fetchWait is how long a broker waits for a message before it answers.
	fetchWait time.Duration
	// patience is after how long without an answer the contact counts as lost. It
	// is several times fetchWait.
	patience time.Duration
	// check is how often that is looked at.
	check time.Duration
}

func defaultTiming() timing {
	return timing{fetchWait: 3 * time.Second, patience: 10 * time.Second, check: 500 * time.Millisecond}
}

// fetchKey is the number of the request Fetch in Kafka's protocol.
const fetchKey = 1

// contact knows whether messages arrive: that is so where brokers answer when
// they are asked for messages, and refuse no partition.
type contact struct {
	trigger *Trigger
	refresh func()
	answers chan struct{} // signals an answer

	mu       sync.Mutex
	answered time.Time
	failing  time.Time // since when brokers refuse the topic or a partition
	failed   time.Time // when one did so last
	reason   string    // why the last attempt failed
}

func newContact(t *Trigger, refresh func()) *contact {
	return &contact{trigger: t, refresh: refresh, answers: make(chan struct{}, 1)}
}

// OnBrokerConnect notes why a connection could not be made.
func (c *contact) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		c.note(err)
	}
}

// OnBrokerE2E notes the answer to a request for messages, or why there is none.
func (c *contact) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if err := e2e.Err(); err != nil {
		c.note(err)
		return
	}
	if key != fetchKey {
		return
	}
	c.mu.Lock()
	c.answered, c.reason = time.Now(), ""
	c.mu.Unlock()
	select {
	case c.answers <- struct{}{}:
	default:
	}
}

// refused notes that a broker gives no messages.
func (c *contact) refused(err error) {
	c.note(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.failed) > c.trigger.timing.patience {
		c.failing = now
	}
	c.failed = now
}

func (c *contact) note(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // ours
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = reason(err)
}

// watch tells of every change between contact and none, until ctx ends. What was
// missed before a contact is made up for by a refresh.
func (c *contact) watch(ctx context.Context, client *kgo.Client) {
	defer c.trigger.connected.Store(false)
	began := time.Now()
	ticker := time.NewTicker(c.trigger.timing.check)
	defer ticker.Stop()
	told := false // of there being no contact
	for {
		now, why := c.state(time.Now())
		switch before := c.trigger.connected.Swap(now); {
		case now && !before:
			c.trigger.logger.Info("Kafka: listening for changes of rules", zap.String("topic", c.trigger.Topic))
			c.refresh()
			told = false
		case !now && !told && time.Since(began) > c.trigger.timing.patience:
			if why == "" {
				why = c.ask(ctx, client)
			}
			c.trigger.logger.Warn("Kafka: no messages arrive, the rules are polled", zap.String("topic", c.trigger.Topic), zap.String("reason", why))
			told = true
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.answers:
		}
	}
}

// ask asks what is wrong with the topic, where no connection failed.
func (c *contact) ask(ctx context.Context, client *kgo.Client) string {
	ctx, cancel := context.WithTimeout(ctx, c.trigger.timing.patience)
	defer cancel()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &c.trigger.Topic
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return reason(err)
	}
	for i := range answer.Topics {
		if err := kerr.ErrorForCode(answer.Topics[i].ErrorCode); err != nil {
			return reason(err)
		}
	}
	return "no answer"
}

// state reports whether messages arrive, and if not, why.
func (c *contact) state(now time.Time) (connected bool, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	patience := c.trigger.timing.patience
	// One refusal is no trouble: a partition may have moved, or a topic be made anew.
	refused := now.Sub(c.failed) < patience && c.failed.Sub(c.failing) > patience/2
	return now.Sub(c.answered) < patience && !refused, c.reason
}

// reason puts an error into words of its own, which hold no address or user.
func reason(err error) string {
	var answer *kerr.Error
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	var notTLS tls.RecordHeaderError
	var first *kgo.ErrFirstReadEOF
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		return answer.Message
	case errors.As(err, &lookup):
		return "a broker's name was not found"
	case errors.As(err, &certificate):
		return "the broker's certificate is not accepted"
	case errors.As(err, &notTLS):
		return "the broker does not speak TLS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, io.EOF), errors.As(err, &first):
		return "the broker hung up: check the user, the password and tls"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	}
	return "connection failed"
}

// Interface guards
var (
	_ kgo.HookBrokerConnect = (*contact)(nil)
	_ kgo.HookBrokerE2E     = (*contact)(nil)
)
