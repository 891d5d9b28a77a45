package main

import (
	"fmt"
	"strings"
)

// What answers a request that passes. UPSTREAM is replaced.
const (
	answerStatic = `respond "ok"`
	answerProxy  = "reverse_proxy UPSTREAM"
)

// limited is the limit of every tenant, as our directive writes it.
type limited string

// The common limit is the one that caddy-ratelimit has, too: of many tenants,
// none reaches it. The wide one is not reached by one tenant alone.
const (
	limitCommon limited = "1000/s"
	limitWide   limited = "1000000/s"
	limitFlood  limited = "100/s"

	// floodRate is limitFlood's number: tokens a second, and how many at once.
	floodRate = 100
)

// route keeps buckets of different limits apart.
func (l limited) route() string {
	switch l {
	case limitWide:
		return "wide"
	case limitFlood:
		return "flood"
	default:
		return "common"
	}
}

// The builds of Caddy, each a folder in cmd.
const (
	buildBare = "bare"
	buildOurs = "ours"
	buildPeer = "peer"
)

// site is a gateway to be: what is the same in two cells is one process.
type site struct {
	build     string
	global    string // a global option
	directive string // what stands before the answer
	answer    string
}

// withRedis is our global option. REDIS is replaced.
const withRedis = "rate_limit {\n\t\tredis redis://REDIS/0\n\t}"

// siteOf is the gateway of that name.
func siteOf(name, answer string, l limited) site {
	ours := func(options string) string {
		return fmt.Sprintf("rate_limit %s {\n\t\tlimit %s\n\t\tunknown default%s\n\t}", l.route(), l, options)
	}
	switch name {
	case nameNothing:
		return site{buildBare, "", "bench_nothing", answer}
	case namePing:
		return site{buildBare, "", "bench_ping REDIS", answer}
	case nameRefuse:
		return site{buildBare, "", "bench_refuse", answer}
	case nameAlone:
		return site{buildOurs, "", ours(""), answer}
	case nameStrict:
		return site{buildOurs, withRedis, ours(""), answer}
	case namePrefetch:
		return site{buildOurs, withRedis, ours("\n\t\tprefetch auto"), answer}
	case namePeer:
		return site{buildPeer, "", "rate_limit {\n\t\tzone common {\n\t\t\tkey {header.X-Api-Key}\n\t\t\twindow 1s\n\t\t\tevents 1000\n\t\t}\n\t}", answer}
	default:
		return site{buildBare, "", "", answer}
	}
}

// places are where a gateway finds what it needs, and is found.
type places struct{ addr, admin, dir, redis, upstream string }

// caddyfile is the gateway's configuration.
func (s site) caddyfile(p places) string {
	const text = `{
	admin ADMIN
	auto_https off
	persist_config off
	storage file_system DIR
	GLOBAL
}
http://ADDR {
	DIRECTIVE
	ANSWER
}
`
	whole := strings.NewReplacer("GLOBAL", s.global, "DIRECTIVE", s.directive, "ANSWER", s.answer).Replace(text)
	return strings.NewReplacer("ADMIN", p.admin, "ADDR", p.addr, "DIR", p.dir, "REDIS", p.redis, "UPSTREAM", p.upstream).Replace(whole)
}
