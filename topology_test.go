package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopologyRefused holds what does not fit together: the error names the field.
func TestTopologyRefused(t *testing.T) {
	tests := map[string]struct{ redis, want string }{
		"unknown mode":          {`{"urls":["redis://a"],"mode":"clutser"}`, `mode: unknown word "clutser": allowed are cluster, sentinel`},
		"no master":             {`{"urls":["redis://a"],"mode":"sentinel"}`, "redis master"},
		"a master with a space": {`{"urls":["redis://a"],"mode":"sentinel","master":"my master"}`, "redis master"},
		"master of one":         {`{"urls":["redis://a"],"master":"m"}`, "redis master is only for mode sentinel"},
		"sentinel user":         {`{"urls":["redis://a"],"sentinel_username":"u"}`, "redis sentinel_username"},
		"sentinel password":     {`{"urls":["redis://a","redis://b"],"sentinel_password":"p"}`, "redis sentinel_password is only for mode sentinel"},
		"user alone":            {`{"urls":["redis://a"],"mode":"sentinel","master":"m","sentinel_username":"u"}`, "redis sentinel_password"},
		"mixed passwords":       {`{"urls":["redis://u:secret@a","redis://u:other@b"]}`, "urls[1]: redis url: its user and password"},
		"mixed users":           {`{"urls":["redis://u:secret@a","redis://v:secret@b"]}`, "urls[1]: redis url: its user and password"},
		"one without password":  {`{"urls":["redis://u:secret@a","redis://u:secret@b","redis://c"]}`, "urls[2]: redis url: its user and password"},
		"mixed schemes":         {`{"urls":["redis://a","rediss://b"]}`, "urls[1]: redis url: its scheme"},
		"mixed databases":       {`{"urls":["redis://a/1","redis://b/2"],"mode":"sentinel","master":"m"}`, "urls[1]: redis url: its database"},
		"a db in a cluster":     {`{"urls":["redis://a/1"],"mode":"cluster"}`, "urls[0]: redis url: a cluster has no databases"},
		"a db in the second":    {`{"urls":["redis://a","redis://b?db=3"]}`, "urls[1]: redis url: a cluster has no databases"},
		"twice":                 {`{"urls":["redis://a","redis://b","redis://a:6379"]}`, "urls[2]: redis url: its host and port are those of urls[0]"},
		"a socket in a cluster": {`{"urls":["unix:///s"],"mode":"cluster"}`, "urls[0]: redis url: mode cluster needs host and port"},
		"the second is wrong":   {`{"urls":["redis://a","http://u:secret@b"]}`, "urls[1]: redis url: its scheme"},
		"the second is empty":   {`{"urls":["redis://a",""]}`, "urls[1]: redis url is missing"},
		"unreadable ca":         {`{"urls":["redis://a","redis://b"],"tls":{"ca_file":"/nowhere"}}`, "tls ca"},
		"unreadable cert":       {`{"urls":["redis://a"],"mode":"sentinel","master":"m","tls":{"cert_file":"/nowhere","key_file":"/nowhere"}}`, "tls cert and key"},
		"cert without key":      {`{"urls":["redis://a"],"tls":{"cert_file":"/nowhere"}}`, "tls: cert and key"},
		"unset placeholder":     {`{"urls":["redis://a"],"mode":"sentinel","master":"{env.RL_NOT_SET}"}`, "redis.master"},
		"unset password":        {`{"urls":["redis://a"],"mode":"sentinel","master":"m","sentinel_password":"{env.RL_NOT_SET}"}`, "redis.sentinel_password"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := provision(t, `{"redis":`+test.redis+`}`, `{"limits":[{"capacity":1,"refill_per_second":1}]}`)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "secret@")
		})
	}
}

func TestTopologyAccepted(t *testing.T) {
	for _, redis := range []string{
		`{"urls":["redis://a"]}`,
		`{"urls":["redis://a"],"mode":"cluster"}`,
		`{"urls":["redis://u:p@a","redis://u:p@b:1","redis://u:p@c"]}`,
		`{"urls":["redis://u:p@a/3"],"mode":"sentinel","master":"m"}`,
		`{"urls":["rediss://a","rediss://b"],"mode":"sentinel","master":"m","sentinel_username":"u","sentinel_password":"p"}`,
		`{"urls":["redis://a","redis://b"],"tls":{}}`,
	} {
		_, err := provision(t, `{"redis":`+redis+`}`, `{"limits":[{"capacity":1,"refill_per_second":1}]}`)
		require.NoError(t, err, redis)
	}
}
