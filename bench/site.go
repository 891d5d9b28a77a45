package main

import (
	"fmt"
	"strings"
)

// answer is what a request gets that passes. A gateway gives each on a port of its
// own, so that both find the same tenants known.
type answer uint8

const (
	answerStatic answer = iota // "ok"
	answerProxy                // what the service behind the gateway says
	answers
)

// limited is the limit of every tenant, as our directive writes it.
type limited string

// The common limit is 1,000 a second, as that of caddy-ratelimit: of many tenants,
// none reaches it. The wide one, 1,000,000 a second, is not reached by one tenant
// alone. Their windows are longer than a run takes: a tenant that comes back after
// a minute is known, as it is to a gateway that runs for days.
const (
	limitCommon limited = "600000/10m"
	limitWide   limited = "600000000/10m"
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

	// buildEarlier is made of an earlier commit, with the folder of ours.
	buildEarlier = "earlier-ours"

	// buildDue is no Caddy but our generator of load.
	buildDue = "due"
)

// site is a gateway to be: what is the same in two cells is one process.
type site struct {
	build     string
	global    string // a global option
	directive string // what stands before the answer
	env       string // what its environment has besides, between blanks
	nice      int    // how far it stands back where processors are wanted
}

// Our global option. REDIS is replaced. The earlier commit has buckets of its own,
// because it may keep them in another form.
const (
	withRedis    = "rate_limit {\n\t\tredis redis://REDIS/0\n\t}"
	withOldRedis = "rate_limit {\n\t\tredis redis://REDIS/1\n\t}"
)

// asksRedis reports whether it is ours and decides through Redis.
func (s site) asksRedis() bool { return s.global != "" }

// peerDirective keeps caddy-ratelimit from forgetting a tenant that has been away
// for a second, as it does once a minute by itself: none of the others does.
const peerDirective = `rate_limit {
		zone common {
			key {header.X-Api-Key}
			window 1s
			events 1000
		}
		sweep_interval 1h
	}`

// siteOf is the gateway of that name.
func siteOf(name string, l limited) site {
	ours := func(options string) string {
		return fmt.Sprintf("rate_limit %s {\n\t\tlimit %s\n\t\tunknown default%s\n\t}", l.route(), l, options)
	}
	switch name {
	case nameNothing:
		return site{build: buildBare, directive: "bench_nothing"}
	case namePing:
		return site{build: buildBare, directive: "bench_ping REDIS"}
	case nameRefuse:
		return site{build: buildBare, directive: "bench_refuse"}
	case nameAlone:
		return site{build: buildOurs, directive: ours("")}
	case nameStrict:
		return site{build: buildOurs, global: withRedis, directive: ours("")}
	case nameEarlier:
		return site{build: buildEarlier, global: withOldRedis, directive: ours("")}
	case namePrefetch:
		return site{build: buildOurs, global: withRedis, directive: ours("\n\t\tprefetch auto")}
	case namePeer:
		return site{build: buildPeer, directive: peerDirective}
	default:
		return site{build: buildBare}
	}
}

// seldom makes Go collect garbage about once a second under full load, so that it
// costs next to nothing, as in caddy-ratelimit, whose heap at 100,000 tenants sees
// to that. A larger bound would not be reached here: memory that is used for the
// first time costs more than a collection.
const seldom = "GOGC=off GOMEMLIMIT=200MiB"

// places are where a gateway finds what it needs, and is found.
type places struct {
	addrs                       [answers]string
	admin, dir, redis, upstream string
}

// caddyfile is the gateway's configuration.
func (s site) caddyfile(p places) string {
	const text = `{
	admin ADMIN
	auto_https off
	persist_config off
	storage file_system DIR
	GLOBAL
}
http://STATIC {
	DIRECTIVE
	respond "ok"
}
http://PROXY {
	DIRECTIVE
	reverse_proxy UPSTREAM
}
`
	whole := strings.NewReplacer("GLOBAL", s.global, "DIRECTIVE", s.directive).Replace(text)
	return strings.NewReplacer("ADMIN", p.admin, "STATIC", p.addrs[answerStatic], "PROXY", p.addrs[answerProxy],
		"DIR", p.dir, "REDIS", p.redis, "UPSTREAM", p.upstream).Replace(whole)
}
