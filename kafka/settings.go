package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/caddygate/ratelimit/internal/block"
)

// The words for how a password is proved.
const (
	saslPlain    = "plain"
	saslSCRAM256 = "scram-sha-256"
	saslSCRAM512 = "scram-sha-512"
)

const (
	// dialTimeout bounds the connection to one broker.
	dialTimeout = 5 * time.Second
	// answerTimeout bounds an answer, in addition to the time for which the
	// broker was asked to wait.
	answerTimeout = 5 * time.Second
	// maxBackoff is the longest wait between two attempts.
	maxBackoff = 2 * time.Second
	// metadataAge is how old the list of brokers and partitions becomes at most.
	metadataAge = 30 * time.Second
	// fetchBytes bounds what one answer holds: the messages are not kept.
	fetchBytes = 1 << 20
)

// TLS says how connections to Kafka are encrypted.
type TLS struct {
	// The file with the certificates (PEM) that the brokers' certificates may be
	// signed by. Default: those of the system.
	CAFile string `json:"ca_file,omitempty"`

	// The file with the client's certificate (PEM). Default: none.
	CertFile string `json:"cert_file,omitempty"`

	// The file with the key (PEM) of the client's certificate. Default: none.
	KeyFile string `json:"key_file,omitempty"`

	// The name that the brokers' certificates must have. Default: the host of
	// each broker.
	ServerName string `json:"server_name,omitempty"`
}

// check reports the first setting that cannot be used, by its field.
func (t *Trigger) check() error {
	if len(t.Brokers) == 0 {
		return errors.New("brokers: at least one host:port is needed")
	}
	for i, broker := range t.Brokers {
		if err := checkBroker(broker); err != nil {
			return fmt.Errorf("brokers[%d]: %w", i, err)
		}
	}
	switch {
	case t.Topic == "":
		return errors.New("topic: the name of a topic is needed")
	case !validTopic(t.Topic):
		return errors.New("topic: allowed are 1 to 249 characters of A-Z a-z 0-9 . _ -")
	case t.Username == "" && (t.Password != "" || t.SASL != ""):
		return errors.New("username: it is needed where there is a password or sasl")
	case t.Username != "" && t.Password == "":
		return errors.New("password: it is needed where there is a username")
	}
	return block.OneOf("sasl", t.SASL, saslWords()...)
}

// validTopic reports whether Kafka allows a topic of that name.
func validTopic(name string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return len(name) <= 249 && !strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(allowed, r) }) && name != "." && name != ".."
}

func saslWords() []string { return []string{saslPlain, saslSCRAM256, saslSCRAM512} }

// checkBroker does not quote what may hold a password.
func checkBroker(broker string) error {
	if broker == "" || strings.ContainsAny(broker, "/@ \t\r\n") {
		return errors.New("it is not host:port: a URL or a user does not belong here")
	}
	host, port, err := net.SplitHostPort(broker)
	if err != nil {
		if strings.Contains(broker, ":") {
			return errors.New("it is not host:port; an IPv6 address stands in brackets")
		}
		return nil // a host alone
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return errors.New("it is not host:port with a port from 1 to 65535")
	}
	return nil
}

// clientOptions returns what does not depend on when the trigger runs.
func (t *Trigger) clientOptions() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(t.Brokers...),
		kgo.ConsumeTopics(t.Topic),
		kgo.ClientID("caddy_rate_limit"),
		kgo.DialTimeout(dialTimeout),
		kgo.RequestTimeoutOverhead(answerTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMaxAge(metadataAge),
		kgo.MetadataMinAge(time.Second), // find moved partitions soon
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.DisableClientMetrics(),
	}
	if t.TLS != nil {
		config, err := t.TLS.config()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	switch {
	case t.Username == "":
	case t.SASL == saslPlain:
		options = append(options, kgo.SASL(plain.Auth{User: t.Username, Pass: t.Password}.AsMechanism()))
	case t.SASL == saslSCRAM256:
		options = append(options, kgo.SASL(scram.Auth{User: t.Username, Pass: t.Password}.AsSha256Mechanism()))
	default:
		options = append(options, kgo.SASL(scram.Auth{User: t.Username, Pass: t.Password}.AsSha512Mechanism()))
	}
	return options, nil
}

// backoff returns how long to wait after a number of failures in a row.
func backoff(failures int) time.Duration {
	const first = 250 * time.Millisecond
	return min(maxBackoff, first<<min(max(failures-1, 0), 10))
}

// config reads the files. An error names the field.
func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading tls.ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("reading tls.ca_file: the file holds no PEM certificate")
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("tls: cert_file and key_file must be given together")
	}
	if t.CertFile != "" {
		certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading tls.cert_file and tls.key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}
