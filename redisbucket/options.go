package redisbucket

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The defaults of Options.
const (
	// DefaultDialTimeout is the DialTimeout where none is given.
	DefaultDialTimeout = time.Second
	// DefaultBreakerFailures is the Breaker.Failures where none are given.
	DefaultBreakerFailures = 5
	// DefaultBreakerOpen is the Breaker.Open where none is given.
	DefaultBreakerOpen = time.Second
)

// The bounds of Options.
const (
	minDialTimeout     = time.Millisecond
	maxDialTimeout     = 10 * time.Second
	maxBreakerFailures = 1000
	minBreakerOpen     = 100 * time.Millisecond
	maxBreakerOpen     = 5 * time.Minute
)

// Options says which Redis is asked and how. The zero value of every field but
// URLs is the documented default.
type Options struct {
	// URLs are the addresses: redis://user:password@host:port/db, rediss:// for
	// TLS, or unix://user:password@/path?db=0. Allowed query parameters are db and,
	// with rediss, skip_verify=true, which accepts any certificate. Of a cluster
	// they are some of its servers, and with sentinels the sentinels; they differ
	// in host and port only. At least one is needed.
	URLs []string

	// Mode says what is at the addresses. Default: one server where there is one
	// URL, and ModeCluster where there are several.
	Mode Mode

	// Master is the name that the sentinels have for the master, of up to 256
	// printable bytes without spaces. Needed with ModeSentinel, and only there.
	Master string

	// SentinelUser and SentinelPassword are for the sentinels. Those in the URLs
	// are for Redis itself. Default: none.
	SentinelUser, SentinelPassword string

	// DialTimeout bounds one connection attempt, from 1ms to 10s. Default: 1s.
	DialTimeout time.Duration

	// Breaker says when Redis is not asked for a while.
	Breaker Breaker

	// TLS says how the connection is encrypted. Any field turns TLS on, as a
	// rediss URL does.
	TLS TLS

	senders senderBounds // for tests; zero are leastSenders and mostSenders
}

// Breaker says when Redis is not asked for a while. It also opens when half of
// at least 20 calls within 10 seconds failed.
type Breaker struct {
	// Failures in a row open it, from 1 to 1000. Default: 5.
	Failures int

	// Open is how long it stays open before one call tries again, from 100ms to
	// 5m. Default: 1s.
	Open time.Duration

	// Off lets every call through.
	Off bool
}

// Validate reports what is wrong with o, without asking the network. Its errors
// name the part that is wrong and never contain a URL or anything of it but the
// names of query parameters.
func (o Options) Validate() error {
	_, err := o.check()
	return err
}

// check is Validate, and returns what the URLs say.
func (o Options) check() ([]address, error) {
	seeds, err := o.addresses()
	if err != nil {
		return nil, err
	}
	if err := o.checkTopology(seeds); err != nil {
		return nil, err
	}
	if o.DialTimeout != 0 && (o.DialTimeout < minDialTimeout || o.DialTimeout > maxDialTimeout) {
		return nil, fmt.Errorf("redis dial_timeout %s is out of bounds: allowed are %s to %s", o.DialTimeout, minDialTimeout, maxDialTimeout)
	}
	if err := o.Breaker.validate(); err != nil {
		return nil, err
	}
	if seeds[0].network == "unix" && o.TLS != (TLS{}) {
		return nil, errors.New("redis tls: a unix socket has none")
	}
	_, err = o.TLS.config(seeds[0])
	return seeds, err
}

// PoolKey is a hex SHA-256 over everything that shapes the connections or the
// breaker, with defaults resolved: equal options, and only those, share a Client.
// The order of the URLs does not matter.
func (o Options) PoolKey() string {
	seeds, err := o.addresses()
	if err != nil {
		seeds = []address{{host: strings.Join(o.URLs, "\x00")}}
	}
	slices.SortFunc(seeds, func(x, y address) int { return strings.Compare(x.host, y.host) })
	o = o.resolved()
	fields := make([]string, 0, 20)
	fields = append(fields,
		string(o.mode()), o.Master, o.SentinelUser, o.SentinelPassword,
		o.DialTimeout.String(), strconv.Itoa(o.Breaker.Failures), o.Breaker.Open.String(), strconv.FormatBool(o.Breaker.Off),
		o.TLS.CAFile, o.TLS.CertFile, o.TLS.KeyFile, o.TLS.ServerName)
	for _, seed := range seeds {
		fields = append(fields, seed.network, seed.host, seed.user, seed.password, strconv.Itoa(seed.db),
			strconv.FormatBool(seed.tls), strconv.FormatBool(seed.skipVerify))
	}
	return digest(fields)
}

// digest is a hash of the fields, which tells them apart.
func digest(fields []string) string {
	hash := sha256.New()
	for _, field := range fields {
		fmt.Fprintf(hash, "%d:%s,", len(field), field)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Identity names what is talked to: for one server "127.0.0.1:6379/0", host and
// port, or a socket's path, and the database; for a cluster
// "cluster 10.0.0.1:6379,10.0.0.2:6379", its URLs' hosts in order; with sentinels
// "sentinel mymaster/0 10.0.0.1:26379,10.0.0.2:26379". It holds no secret, and is
// empty where the URLs are not valid.
func (o Options) Identity() string {
	seeds, err := o.addresses()
	if err != nil {
		return ""
	}
	hosts := make([]string, len(seeds))
	for i, seed := range seeds {
		hosts[i] = seed.host
	}
	slices.Sort(hosts)
	switch all := strings.Join(hosts, ","); o.mode() {
	case ModeCluster:
		return "cluster " + all
	case ModeSentinel:
		return "sentinel " + o.Master + "/" + strconv.Itoa(seeds[0].db) + " " + all
	default:
		return seeds[0].String()
	}
}

// resolved returns o with defaults in place of zero values.
func (o Options) resolved() Options {
	if o.DialTimeout == 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.senders == (senderBounds{}) {
		o.senders = senderBounds{leastSenders, mostSenders}
	}
	if o.Breaker.Off {
		o.Breaker = Breaker{Off: true}
		return o
	}
	if o.Breaker.Failures == 0 {
		o.Breaker.Failures = DefaultBreakerFailures
	}
	if o.Breaker.Open == 0 {
		o.Breaker.Open = DefaultBreakerOpen
	}
	return o
}

func (b Breaker) validate() error {
	switch {
	case b.Failures < 0 || b.Failures > maxBreakerFailures:
		return fmt.Errorf("redis breaker: %d failures are out of bounds: allowed are 1 to %d", b.Failures, maxBreakerFailures)
	case b.Open != 0 && (b.Open < minBreakerOpen || b.Open > maxBreakerOpen):
		return fmt.Errorf("redis breaker: open for %s is out of bounds: allowed are %s to %s", b.Open, minBreakerOpen, maxBreakerOpen)
	}
	return nil
}
