package redisbucket

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestO6Secrets: whatever is wrong with a URL, its password is in no error.
func TestO6Secrets(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                                                   "missing",
		"redis://user:s3cr%t@host:6379":                      "not a URL",
		"redis://user:s3cr#t@host:6379":                      "must be written as %XX",
		"redis://user:s3cr/t@host:6379":                      "must be written as %XX",
		"redis://user:s3cr?t@host:6379":                      "",
		"redis://user:s3cret@host:s3cret":                    "not a URL",
		"redis://user:s3cret@host:6379/s3cret":               "database",
		"redis://user:s3cret@host:99999":                     "port",
		"redis://user:s3cret@:6379":                          "host",
		"s3cret://user:s3cret@host":                          "scheme",
		"redis://user:s3cret@host?max_retries=2":             "max_retries",
		"redis://user:s3cret@host?read_timeout=3s":           "read_timeout",
		"redis://user:s3cret@host?pool_size=9":               "pool_size",
		"redis://user:s3cret@host?protocol=3":                "protocol",
		"redis://user:s3cret@host?s3cret=1":                  "unknown query parameter",
		"redis://user:s3cret@host?skip_verify=true":          "skip_verify",
		"rediss://user:s3cret@host?skip_verify=s3cret":       "skip_verify",
		"redis://user:s3cret@host?db=s3cret":                 "database",
		"redis://user:s3cret@host?db=1&db=2":                 "twice",
		"redis://user:s3cret@host/0#s3cret":                  "fragment",
		"unix://user:s3cret@host/run/redis.sock":             "unix",
		"redis://user:s3cret@host:6379/-1":                   "database",
		"redis://user:s3cret@host:6379/1/2":                  "database",
		"redis://user:s3cret@host:6379?a%zz=s3cret":          "query",
		"redis://user:s3cret@host:6379/99999999999999999999": "database",
		"user:s3cret@host:6379":                              "",
		"redis:user:s3cret@host:6379":                        "it must begin with redis://",
		"\x7fredis://user:s3cret@host":                       "not a URL",
		"redis://user:s3cret@[::1":                           "not a URL",
	}
	for text, part := range tests {
		o := Options{URLs: []string{text}}
		err := o.Validate()
		require.ErrorContains(t, err, part, text)
		require.NotContains(t, err.Error(), "s3cr", text)
		require.NotContains(t, err.Error(), "user:", text)
		require.NotContains(t, o.Identity(), "s3cr", text)
		_, err = NewClient(o)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cr", text)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	tests := map[string]address{
		"redis://h":                       {network: "tcp", host: "h:6379"},
		"redis://h/":                      {network: "tcp", host: "h:6379"},
		"redis://:pw@h:1/2":               {network: "tcp", host: "h:1", password: "pw", db: 2},
		"rediss://u:p%40@[::1]:1?db=3":    {network: "tcp", host: "[::1]:1", user: "u", password: "p@", db: 3, tls: true},
		"rediss://h?skip_verify=true":     {network: "tcp", host: "h:6379", tls: true, skipVerify: true},
		"unix://u:p@/run/redis.sock?db=1": {network: "unix", host: "/run/redis.sock", user: "u", password: "p", db: 1},
		"unix:///run/redis.sock":          {network: "unix", host: "/run/redis.sock"},
	}
	for text, want := range tests {
		got, err := parseURL(text, redisPort)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.NoError(t, Options{URLs: []string{text}}.Validate(), text)
	}
	require.Equal(t, "h:1/2", Options{URLs: []string{"redis://:pw@h:1/2"}}.Identity())
}

func TestOptionBounds(t *testing.T) {
	t.Parallel()
	const url = "redis://h"
	good := []Options{
		{URLs: []string{url}},
		{URLs: []string{url}, DialTimeout: time.Millisecond, Breaker: Breaker{Failures: 1, Open: 100 * time.Millisecond}},
		{URLs: []string{url}, DialTimeout: 10 * time.Second, Breaker: Breaker{Failures: 1000, Open: 5 * time.Minute}},
		{URLs: []string{url}, Breaker: Breaker{Off: true}},
	}
	for _, o := range good {
		require.NoError(t, o.Validate(), "%+v", o)
	}
	bad := map[string]Options{
		"dial_timeout":         {URLs: []string{url}, DialTimeout: -1},
		"dial_timeout 10.001s": {URLs: []string{url}, DialTimeout: 10*time.Second + time.Millisecond},
		"failures":             {URLs: []string{url}, Breaker: Breaker{Failures: 1001}},
		"breaker: -1":          {URLs: []string{url}, Breaker: Breaker{Failures: -1}},
		"open":                 {URLs: []string{url}, Breaker: Breaker{Open: time.Millisecond}},
		"open for":             {URLs: []string{url}, Breaker: Breaker{Open: time.Hour}},
		"unix":                 {URLs: []string{"unix:///s"}, TLS: TLS{ServerName: "x"}},
	}
	for part, o := range bad {
		require.ErrorContains(t, o.Validate(), part)
	}
}

func TestTLSFilesAreChecked(t *testing.T) {
	t.Parallel()
	certificate := servertest.NewCertificate(t)
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("no PEM"), 0o600))
	const url = "redis://h"
	good := TLS{CAFile: certificate.CertFile, CertFile: certificate.CertFile, KeyFile: certificate.KeyFile}
	require.NoError(t, Options{URLs: []string{url}, TLS: good}.Validate())
	for part, config := range map[string]TLS{
		"tls ca":           {CAFile: "/does/not/exist"},
		"tls ca: the file": {CAFile: garbage},
		"given together":   {CertFile: certificate.CertFile},
		"be given":         {KeyFile: certificate.KeyFile},
		"cert and key":     {CertFile: garbage, KeyFile: garbage},
	} {
		require.ErrorContains(t, Options{URLs: []string{url}, TLS: config}.Validate(), part)
	}
}

// TestPoolKey: equal settings share, any other setting does not.
func TestPoolKey(t *testing.T) {
	t.Parallel()
	base := Options{URLs: []string{"redis://u:p@h:6379/0"}}
	same := []Options{
		{URLs: []string{"redis://u:p@h"}},
		{URLs: []string{"redis://u:p@h?db=0"}, DialTimeout: DefaultDialTimeout},
		{URLs: []string{"redis://u:p@h/"}, Breaker: Breaker{Failures: DefaultBreakerFailures, Open: DefaultBreakerOpen}},
	}
	for _, o := range same {
		require.Equal(t, base.PoolKey(), o.PoolKey(), "%+v", o)
	}
	keys := map[string]Options{base.PoolKey(): base}
	for _, o := range []Options{
		{URLs: []string{"redis://u:p2@h"}},
		{URLs: []string{"redis://u2:p@h"}},
		{URLs: []string{"redis://up:@h"}},
		{URLs: []string{"redis://u:p@h2"}},
		{URLs: []string{"redis://u:p@h/1"}},
		{URLs: []string{"redis://u:p@h:1"}},
		{URLs: []string{"rediss://u:p@h"}},
		{URLs: []string{"rediss://u:p@h?skip_verify=1"}},
		{URLs: []string{"unix://u:p@/h"}},
		{URLs: []string{"nonsense"}},
		{URLs: []string{""}},
		{URLs: base.URLs, DialTimeout: 2 * time.Second},
		{URLs: base.URLs, Breaker: Breaker{Failures: 6}},
		{URLs: base.URLs, Breaker: Breaker{Open: 2 * time.Second}},
		{URLs: base.URLs, Breaker: Breaker{Off: true}},
		{URLs: base.URLs, TLS: TLS{CAFile: "x"}},
		{URLs: base.URLs, TLS: TLS{CertFile: "x"}},
		{URLs: base.URLs, TLS: TLS{KeyFile: "x"}},
		{URLs: base.URLs, TLS: TLS{ServerName: "x"}},
	} {
		key := o.PoolKey()
		require.Len(t, key, 64)
		require.NotContains(t, keys, key, "%+v and %+v", o, keys[key])
		keys[key] = o
	}
	off := Options{URLs: base.URLs, Breaker: Breaker{Off: true, Failures: 7}}
	require.Contains(t, keys, off.PoolKey(), "what a breaker that is off would do does not matter")
}
