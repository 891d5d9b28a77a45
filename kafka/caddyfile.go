package kafka

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddygate/ratelimit/internal/block"
)

// UnmarshalCaddyfile sets up the trigger from Caddyfile tokens. Syntax:
//
//	kafka {
//		brokers  <host:port>...
//		topic    <name>
//		user     <name>
//		password <text>
//		sasl     plain|scram-sha-256|scram-sha-512
//		tls {
//			ca          <file>
//			cert        <file>
//			key         <file>
//			server_name <name>
//		}
//	}
func (t *Trigger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if d.NextArg() {
		return d.ArgErr()
	}
	return block.Parse(d, map[string]block.Option{
		"brokers":  {Parse: t.parseBrokers},
		"topic":    {Parse: block.Text(&t.Topic)},
		"user":     {Parse: block.Text(&t.Username)},
		"password": {Parse: block.Text(&t.Password)},
		"sasl":     {Parse: block.Word(&t.SASL, saslWords()...)},
		"tls":      {Parse: t.parseTLS},
	})
}

func (t *Trigger) parseBrokers(d *caddyfile.Dispenser) error {
	t.Brokers = d.RemainingArgs()
	if len(t.Brokers) == 0 {
		return d.Err("brokers needs at least one host:port")
	}
	for broker := range strings.SplitSeq(strings.Join(t.Brokers, ","), ",") {
		if strings.Contains(broker, "{") {
			continue // checked when its value is known
		}
		if err := checkBroker(broker); err != nil {
			return d.Errf("brokers: %v", err)
		}
	}
	return nil
}

func (t *Trigger) parseTLS(d *caddyfile.Dispenser) error {
	t.TLS = new(TLS)
	return block.TLS{CA: &t.TLS.CAFile, Cert: &t.TLS.CertFile, Key: &t.TLS.KeyFile, ServerName: &t.TLS.ServerName}.Parse(d)
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Trigger)(nil)
