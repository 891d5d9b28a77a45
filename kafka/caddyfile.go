package kafka

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
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
	return parseBlock(d, map[string]func(*caddyfile.Dispenser) error{
		"brokers":  t.parseBrokers,
		"topic":    text(&t.Topic),
		"user":     text(&t.Username),
		"password": text(&t.Password),
		"sasl":     t.parseSASL,
		"tls":      t.parseTLS,
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

func (t *Trigger) parseSASL(d *caddyfile.Dispenser) error {
	if err := text(&t.SASL)(d); err != nil {
		return err
	}
	if !slices.Contains(saslWords(), t.SASL) {
		return d.Errf("sasl: unknown word %q: allowed are %s", t.SASL, strings.Join(saslWords(), ", "))
	}
	return nil
}

func (t *Trigger) parseTLS(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	t.TLS = new(TLS)
	return parseBlock(d, map[string]func(*caddyfile.Dispenser) error{
		"ca":          text(&t.TLS.CAFile),
		"cert":        text(&t.TLS.CertFile),
		"key":         text(&t.TLS.KeyFile),
		"server_name": text(&t.TLS.ServerName),
	})
}

// parseBlock reads the options of a block, each by its own parser and once.
func parseBlock(d *caddyfile.Dispenser, options map[string]func(*caddyfile.Dispenser) error) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		parse, known := options[name]
		switch {
		case !known && strings.Contains(name, "://"):
			return d.Err("an address stands where an option should")
		case !known:
			return d.Errf("unknown option %q: allowed here are %s", name, strings.Join(names(options), ", "))
		case seen[name]:
			return d.Errf("the option %s stands here twice", name)
		}
		seen[name] = true
		if err := parse(d); err != nil {
			return err
		}
	}
	return nil
}

func names(options map[string]func(*caddyfile.Dispenser) error) []string {
	list := make([]string, 0, len(options))
	for name := range options {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// text reads an option's only argument.
func text(dst *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name, args := d.Val(), d.RemainingArgs()
		if len(args) != 1 || args[0] == "" {
			// ArgErr would quote the last argument, which may be a part of a secret.
			return d.Errf("wrong argument count: %s takes one", name)
		}
		*dst = args[0]
		return nil
	}
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Trigger)(nil)
