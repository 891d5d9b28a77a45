package redisbucket

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// outerTimeout bounds an exchange that has no deadline of its own.
	outerTimeout = time.Second
	// socketTimeout bounds an exchange whatever its deadline: no decision may wait
	// any longer.
	socketTimeout = 10 * time.Second
)

// newConnection makes a client of one connection, which it never replaces: one
// attempt, deadlines from the context, and nothing that asks Redis behind our
// back. It owns conn from then on.
func newConnection(o Options, endpoint address, conn net.Conn) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: endpoint.network, Addr: endpoint.host,
		Username: endpoint.user, Password: endpoint.password, DB: endpoint.db,
		Dialer:                   once(conn),
		Protocol:                 2,
		MaxRetries:               -1,
		DialTimeout:              o.DialTimeout,
		DialerRetries:            1,
		ReadTimeout:              socketTimeout,
		WriteTimeout:             socketTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 1,
		PoolTimeout:              outerTimeout,
		MinIdleConns:             0,
		PipelinePoolSize:         -1,
		MaxConcurrentDials:       2,
		ReadBufferSize:           4 << 10,
		WriteBufferSize:          4 << 10,
		ConnMaxIdleTime:          -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// dial connects to the endpoint within the dial timeout, TLS included.
func dial(ctx context.Context, o Options, endpoint address) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	config, err := o.TLS.config(endpoint)
	if err != nil {
		return nil, err
	}
	plain := &net.Dialer{}
	if config == nil {
		return plain.DialContext(ctx, endpoint.network, endpoint.host)
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, endpoint.network, endpoint.host)
}

// once returns a dialer that hands out a connection that is there already. The
// client's pool, which would dial within a request, try again and log, never
// gets to dial.
func once(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	var used atomic.Bool
	return func(context.Context, string, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, net.ErrClosed
		}
		return conn, nil
	}
}

// The oldest Redis that is used.
const (
	minMajor = 6
	minMinor = 2
)

// greet proves a new connection and looks at the server behind it. HELLO needs
// no right, and tells the version; a server without it is asked otherwise.
func (n *node) greet(ctx context.Context, conn *redis.Conn) error {
	reply, err := conn.Do(ctx, "hello", "2").Result()
	if err != nil && !fromRedis(err) {
		return err
	}
	if class := replyClass(err); class == "NOAUTH" || class == "WRONGPASS" {
		return err
	}
	server := greetingOf(reply)
	if server.version == "" {
		text, err := infoText(ctx, conn, "server")
		if err != nil {
			return err
		}
		server.readInfo(text)
	}
	if server.tooOld() {
		if !n.versionTold.Swap(true) {
			n.tell(Event{Kind: VersionTooOld, Detail: server.version})
		}
		return fmt.Errorf("%w, it is %s", errVersion, server.version)
	}
	n.versionTold.Store(false)
	if server.mode == "sentinel" {
		if !n.client.sentinelTold.Swap(true) {
			n.tell(Event{Kind: SentinelServer})
		}
		return errSentinel
	}
	n.client.sentinelTold.Store(false)
	if n.client.options.mode() == ModeSentinel && server.replica() {
		return errReplica // it was the master, or will be one
	}
	return n.checkPolicy(ctx, conn)
}

// checkPolicy warns once of a server that may evict buckets. Not to be allowed
// to ask is no error.
func (n *node) checkPolicy(ctx context.Context, conn *redis.Conn) error {
	if n.policy.Load() {
		return nil
	}
	text, err := infoText(ctx, conn, "memory")
	policy := infoField(text, "maxmemory_policy")
	if err != nil || n.policy.Swap(true) {
		return err
	}
	if policy != "" && policy != "noeviction" {
		n.tell(Event{Kind: EvictingPolicy, Detail: policy})
	}
	return nil
}

// greeting is what a server says of itself in its reply to HELLO.
type greeting struct{ server, version, mode, role string }

// greetingOf reads the reply to HELLO; what it does not say is empty.
func greetingOf(reply any) (g greeting) {
	fields, _ := reply.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		value, _ := fields[i+1].(string)
		switch fields[i] {
		case "server":
			g.server = value
		case "version":
			g.version = value
		case "mode":
			g.mode = value
		case "role":
			g.role = value
		}
	}
	return g
}

// replica reports whether the server says that it is no master.
func (g greeting) replica() bool { return g.role == "replica" || g.role == "slave" }

// tooOld reports whether the server is a Redis before 6.2. Valkey and others count
// in their own way, and what cannot be read is not too old.
func (g greeting) tooOld() bool {
	return (g.server == "" || g.server == "redis") && tooOld(g.version)
}

// readInfo reads what a server says of itself in INFO. Valkey has a name and a
// version of its own beside those of the Redis that it stands for.
func (g *greeting) readInfo(text string) {
	g.server, g.version = infoField(text, "server_name"), infoField(text, "redis_version")
	if own := infoField(text, "valkey_version"); own != "" {
		g.server, g.version = "valkey", own
	}
}

// infoText returns a section of INFO, "" where the server does not say. Only an
// error of the connection is one.
func infoText(ctx context.Context, conn *redis.Conn, section string) (string, error) {
	text, err := conn.Info(ctx, section).Result()
	if err != nil && !fromRedis(err) {
		return "", err
	}
	return text, nil
}

// infoField returns a field of a section of INFO, "" where it is not there.
func infoField(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// tooOld reports whether version is that of a Redis before 6.2. What cannot be
// read is not too old.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return major < minMajor || major == minMajor && minor < minMinor
}

// TLS says how the connection to Redis is encrypted. The files are read again
// for each connection, so a renewed certificate needs no reload.
type TLS struct {
	// CAFile holds the PEM certificates to trust. Default: the system's.
	CAFile string

	// CertFile and KeyFile hold the PEM certificate and key to present. Default:
	// none. One needs the other.
	CertFile, KeyFile string

	// ServerName is the name that the server's certificate must have. Default:
	// the URL's host.
	ServerName string
}

// config returns the TLS configuration for an endpoint, nil where TLS is off.
// An error names the field that is wrong.
func (t TLS) config(endpoint address) (*tls.Config, error) {
	if !endpoint.tls && t == (TLS{}) {
		return nil, nil
	}
	host, _, _ := net.SplitHostPort(endpoint.host)
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host,
		InsecureSkipVerify: endpoint.skipVerify, //nolint:gosec // asked for by name in the URL
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading redis tls ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("reading redis tls ca: the file holds no PEM certificate")
		}
	}
	return config, t.present(config)
}

// present adds the certificate that the client presents.
func (t TLS) present(config *tls.Config) error {
	if t.CertFile == "" && t.KeyFile == "" {
		return nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return errors.New("redis tls: cert and key must be given together")
	}
	certificate, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return fmt.Errorf("reading redis tls cert and key: %w", err)
	}
	config.Certificates = []tls.Certificate{certificate}
	return nil
}

// mostHeard is how many bytes of a server's first reply are kept.
const mostHeard = 4 << 10

// hearing is a connection that keeps what its server says first. A Redis that takes
// no client, because it has as many as it may or is in protected mode, says so at
// once and hangs up. The client that greets passes the reply over, as that of a
// server without HELLO, and fails at the end of the connection, which tells nobody why.
type hearing struct {
	net.Conn
	heard []byte
}

// Read reads from the connection.
func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	h.heard = append(h.heard, p[:min(n, mostHeard-len(h.heard))]...)
	return n, err
}

// explained adds to the error of a connection that ended with what its server said
// before it hung up.
func (h *hearing) explained(err error) error {
	if err == nil || fromRedis(err) || transportReason(err) != "connection" {
		return err
	}
	line, _, whole := bytes.Cut(h.heard, []byte("\r\n"))
	if said := errorIn(line); whole && said != nil && !unknownCommand(said) {
		return fmt.Errorf("%w: %w", said, err)
	}
	return err
}
