package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/front"
	"github.com/caddygate/ratelimit/redisbucket"
)

// Redis says which Redis holds the buckets and how it is talked to. Redis 6.2 or
// newer, or Valkey, is needed.
type Redis struct {
	// Where Redis is: one URL `redis://user:pass@host:port/db`, `rediss://…` for
	// TLS or `unix://…`. Of a cluster, the URLs of some of its servers, from which
	// the others are learned; with sentinels, those of the sentinels. Several URLs
	// differ in host and port only. The user, password, database and scheme are
	// those of Redis itself, also in the URLs of sentinels. Required.
	URLs []string `json:"urls,omitempty"`

	// What is at the URLs: `cluster` for servers of one Redis Cluster, of which
	// each decides for its part of the tenants, or `sentinel` for sentinels, which
	// name the server that decides. Default: one server; with several URLs
	// `cluster`.
	Mode string `json:"mode,omitempty"`

	// The name that the sentinels have for the master, such as `mymaster`. Required
	// with the mode `sentinel`, and only allowed there. Default: none.
	Master string `json:"master,omitempty"`

	// The user for the sentinels, which are never given the one for Redis. Default:
	// none; with a password alone, the sentinels' default user.
	SentinelUsername string `json:"sentinel_username,omitempty"`

	// The password for the sentinels. Default: none.
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// What the name of every key begins with, up to 32 bytes without braces.
	// Gateways that share limits use the same. Default: `rl`.
	KeyPrefix string `json:"key_prefix,omitempty"`

	// How long one decision may wait for Redis in all, from 1 ms to 10 s. After
	// that, the fallback decides. Default: 5ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// How long connecting may take, from 1 ms to 10 s. Requests do not wait for
	// it. Default: 1s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// Has no effect any more: requests share calls without waiting for each other.
	// Default: none.
	Linger caddy.Duration `json:"linger,omitempty"`

	// When Redis is left alone after failures. Default: after 5 in a row, for 1s.
	Breaker *Breaker `json:"breaker,omitempty"`

	// How connections are encrypted. Default: not, unless the URL is `rediss://`.
	TLS *TLS `json:"tls,omitempty"`
}

// Breaker says when Redis is left alone, so that its failures cost no request
// any time. It also opens when half of at least 20 calls within 10 seconds failed.
type Breaker struct {
	// How many failures in a row open the breaker, from 1 to 1000; -1 turns the
	// breaker off. Default: 5.
	Failures int `json:"failures,omitempty"`

	// How long the breaker stays open before one call may probe, from 100 ms to
	// 5 m. Default: 1s.
	Open caddy.Duration `json:"open,omitempty"`
}

// breakerOff is the number of failures that turns the breaker off.
const breakerOff = -1

// TLS says how connections to Redis are encrypted. With it, they always are.
type TLS struct {
	// The file with the certificates (PEM) that Redis' certificate may be signed
	// by. Default: those of the system.
	CAFile string `json:"ca_file,omitempty"`

	// The file with the client's certificate (PEM). Default: none.
	CertFile string `json:"cert_file,omitempty"`

	// The file with the key (PEM) of the client's certificate. Default: none.
	KeyFile string `json:"key_file,omitempty"`

	// The name that Redis' certificate must hold, of a cluster and with sentinels
	// the certificate of every server. Default: the host that is connected to.
	ServerName string `json:"server_name,omitempty"`
}

// maxKeyPrefixLength is in bytes.
const maxKeyPrefixLength = 32

func (r *Redis) check() error {
	errs := []error{
		timeoutBounds.CheckSet("redis.timeout", time.Duration(r.Timeout)),
		dialTimeoutBounds.CheckSet("redis.dial_timeout", time.Duration(r.DialTimeout)),
		checkKeyPrefix("redis.key_prefix", r.KeyPrefix),
	}
	if b := r.Breaker; b != nil {
		if b.Failures != breakerOff {
			errs = append(errs, failureBounds.CheckSet("redis.breaker.failures", b.Failures))
		} else if b.Open != 0 {
			errs = append(errs, errors.New("redis.breaker.open: a breaker that is off (failures -1) is never open"))
		}
		errs = append(errs, openBounds.CheckSet("redis.breaker.open", time.Duration(b.Open)))
	}
	if len(r.URLs) == 0 {
		return errors.Join(append(errs, errors.New("redis.urls: a URL is needed, such as redis://127.0.0.1:6379/0"))...)
	}
	if scheme, _, _ := strings.Cut(r.URLs[0], "://"); r.TLS != nil && strings.EqualFold(scheme, "unix") {
		errs = append(errs, errors.New("redis.tls: a unix socket has none"))
	}
	for i, url := range r.URLs {
		if err := (redisbucket.Options{URLs: []string{url}}).Validate(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("redis.urls[%d]: %w", i, err))...)
		}
	}
	if err := r.options().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("redis: %w", err))
	}
	return errors.Join(errs...)
}

func checkKeyPrefix(field, prefix string) error {
	if len(prefix) > maxKeyPrefixLength || strings.ContainsAny(prefix, "{}") {
		return fmt.Errorf("%s: %q is not allowed: up to %d bytes without braces are", field, prefix, maxKeyPrefixLength)
	}
	return nil
}

// options returns what connects to this Redis.
func (r *Redis) options() redisbucket.Options {
	options := redisbucket.Options{
		URLs: slices.Clone(r.URLs), Mode: redisbucket.Mode(r.Mode), Master: r.Master,
		SentinelUser: r.SentinelUsername, SentinelPassword: r.SentinelPassword,
		DialTimeout: time.Duration(r.DialTimeout),
	}
	if b := r.Breaker; b != nil {
		options.Breaker = redisbucket.Breaker{Failures: b.Failures, Open: time.Duration(b.Open)}
		if b.Failures == breakerOff {
			options.Breaker = redisbucket.Breaker{Off: true}
		}
	}
	if t := r.TLS; t != nil {
		// Even an empty block encrypts, as the scheme does.
		for i, url := range options.URLs {
			if scheme, address, _ := strings.Cut(url, "://"); strings.EqualFold(scheme, "redis") {
				options.URLs[i] = "rediss://" + address
			}
		}
		options.TLS = redisbucket.TLS{
			CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
		}
	}
	return options
}

func (r *Redis) keyPrefix() string {
	if r.KeyPrefix == "" {
		return redisbucket.DefaultPrefix
	}
	return r.KeyPrefix
}

func (r *Redis) timeout() time.Duration {
	if r.Timeout == 0 {
		return front.DefaultTimeout
	}
	return time.Duration(r.Timeout)
}

func (r *Redis) openTime() time.Duration {
	if r.Breaker == nil || r.Breaker.Open == 0 {
		return redisbucket.DefaultBreakerOpen
	}
	return time.Duration(r.Breaker.Open)
}
