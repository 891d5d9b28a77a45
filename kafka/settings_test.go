package kafka

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"
)

// TestProvisionRefuses names the field that is wrong, and no secret.
func TestProvisionRefuses(t *testing.T) {
	t.Parallel()
	for want, trigger := range map[string]*Trigger{
		"brokers: at least one host:port is needed":           {Topic: "t"},
		"brokers[0]: it is not host:port: a URL":              {Topic: "t", Brokers: []string{"kafka://bob:secret@a:9092"}},
		"brokers[1]: it is not host:port with a port":         {Topic: "t", Brokers: []string{"a:9092", "b:99999"}},
		"brokers[2]: it is not host:port with a port":         {Topic: "t", Brokers: []string{"a:9092", "b,c:x"}},
		"an IPv6 address stands in brackets":                  {Topic: "t", Brokers: []string{"::1"}},
		"topic: the name of a topic is needed":                {Brokers: []string{"a"}},
		"topic: allowed are 1 to 249 characters":              {Brokers: []string{"a"}, Topic: "a topic"},
		"topic: allowed are":                                  {Brokers: []string{"a"}, Topic: strings.Repeat("x", 250)},
		"username: it is needed where":                        {Brokers: []string{"a"}, Topic: "t", Password: "secret"},
		"username: it is needed":                              {Brokers: []string{"a"}, Topic: "t", SASL: "plain"},
		"password: it is needed where there is a username":    {Brokers: []string{"a"}, Topic: "t", Username: "bob"},
		`sasl: unknown word "gssapi": allowed are plain`:      {Brokers: []string{"a"}, Topic: "t", Username: "bob", Password: "secret", SASL: "gssapi"},
		"password: a placeholder in it is unknown":            {Brokers: []string{"a"}, Topic: "t", Username: "bob", Password: "secret{env.NO_SUCH_SECRET}"},
		"brokers[0]: a placeholder in it is unknown":          {Brokers: []string{"{env.NO_SUCH_BROKERS}"}, Topic: "t"},
		"reading tls.ca_file: open":                           {Brokers: []string{"a"}, Topic: "t", TLS: &TLS{CAFile: "/no/such/file"}},
		"reading tls.ca_file: the file holds no PEM":          {Brokers: []string{"a"}, Topic: "t", TLS: &TLS{CAFile: "settings_test.go"}},
		"tls: cert_file and key_file must be given together":  {Brokers: []string{"a"}, Topic: "t", TLS: &TLS{CertFile: "x"}},
		"reading tls.cert_file and tls.key_file: open /no/su": {Brokers: []string{"a"}, Topic: "t", TLS: &TLS{CertFile: "/no/such", KeyFile: "/no/such"}},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		err := trigger.Provision(ctx)
		cancel()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestCaddyfile reads every option, and names the line of what is wrong.
func TestCaddyfile(t *testing.T) {
	t.Parallel()
	adapt := func(block string) (string, error) {
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\n rate_limit {\n  rules postgres://127.0.0.1/x {\n"+block+"\n  }\n }\n}\n"), map[string]any{"filename": "Caddyfile"})
		return string(config), err
	}
	config, err := adapt(`trigger kafka {
		brokers a:9092 b:9092
		topic rate-limit-rules
		user {env.KAFKA_USER}
		password {env.KAFKA_PASSWORD}
		sasl scram-sha-256
		tls {
			ca ca.pem
			cert cert.pem
			key key.pem
			server_name kafka.internal
		}
	}
	refresh 1h`)
	require.NoError(t, err)
	require.JSONEq(t, `{"apps": {"rate_limit": {"rules": {"dsn": "postgres://127.0.0.1/x", "refresh": 3600000000000, "trigger": {
		"name": "kafka", "brokers": ["a:9092", "b:9092"], "topic": "rate-limit-rules",
		"username": "{env.KAFKA_USER}", "password": "{env.KAFKA_PASSWORD}", "sasl": "scram-sha-256",
		"tls": {"ca_file": "ca.pem", "cert_file": "cert.pem", "key_file": "key.pem", "server_name": "kafka.internal"}
	}}}}}`, config)

	page, err := os.ReadFile("../docs/kafka.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(page), "```caddyfile\n")
	require.True(t, found)
	example, _, _ = strings.Cut(example, "```")
	_, _, err = caddyconfig.GetAdapter("caddyfile").Adapt([]byte(example), map[string]any{"filename": "Caddyfile"})
	require.NoError(t, err)

	for block, want := range map[string]string{
		"trigger":                     "trigger needs the name of a module, such as kafka, at Caddyfile:4",
		"trigger nats":                "trigger: there is no module rate_limit.triggers.nats in this Caddy: build it in, at Caddyfile:4",
		"trigger kafka x":             "wrong argument count",
		"trigger kafka {\nbrokers\n}": "brokers needs at least one host:port, at Caddyfile:5",
		"trigger kafka {\nbrokers kafka://bob:secret@a\n}":             "brokers: it is not host:port: a URL or a user does not belong here, at Caddyfile:5",
		"trigger kafka {\nbrokers a\nbrokers b\n}":                     "the option brokers is given twice, at Caddyfile:6",
		"trigger kafka {\ntopic a b\n}":                                "wrong argument count",
		"trigger kafka {\npassword a secret\n}":                        "wrong argument count: password takes one, at Caddyfile:5",
		"trigger kafka {\nsasl gssapi\n}":                              `sasl: unknown word "gssapi"`,
		"trigger kafka {\ngroup x\n}":                                  `unknown option "group": allowed here are brokers, password, sasl, tls, topic, user, at Caddyfile:5`,
		"trigger kafka {\nkafka://bob:secret@a\n}":                     "an address stands where an option should, at Caddyfile:5",
		"trigger kafka {\ntls on\n}":                                   "wrong argument count",
		"trigger kafka {\ntls {\ninsecure\n}\n}":                       `unknown option "insecure": allowed here are ca, cert, key, server_name`,
		"trigger kafka {\nbrokers a\n}\ntrigger kafka {\nbrokers a\n}": "the option trigger is given twice",
	} {
		_, err := adapt(block)
		require.ErrorContains(t, err, want, block)
		require.NotContains(t, err.Error(), "secret")
	}
}
