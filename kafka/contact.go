package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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
	failed   time.Time // when a broker last refused the topic or a partition
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
	c.answered = time.Now()
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
	c.failed = time.Now()
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
func (c *contact) watch(ctx context.Context) {
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

// state reports whether messages arrive, and if not, why.
func (c *contact) state(now time.Time) (connected bool, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	patience := c.trigger.timing.patience
	why = c.reason
	if why == "" {
		why = "no answer"
	}
	return now.Sub(c.answered) < patience && now.Sub(c.failed) >= patience, why
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
	case errors.As(err, &first):
		return "the broker hung up at once: does it want tls, or a user?"
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
