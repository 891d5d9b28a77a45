package ratelimit

import (
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// tellRefusal logs the refusal and emits its event. The charge then holds the
// wait that the client is told, too.
func (h *Handler) tellRefusal(r *http.Request, c *charge) {
	c.state.RetryAfter = jittered(c.state.RetryAfter, h.Jitter, rand.Float64)
	said := refusal{zone: c.zone.name, source: c.source, wait: c.state.RetryAfter, remoteIP: remoteIP(r), clientIP: clientIP(r)}
	if h.LogKey {
		said.tenant = c.tenant
	}
	if h.LogAll {
		h.app.refusals.write(said)
	} else {
		h.app.refusals.note(c.bucket.Key, said)
	}
	h.app.memory.top.note(c)
	h.emitExceeded(r, c)
}

// jittered adds to a wait up to the part jitter of it. random returns a number
// from 0 to below 1; limit.MaxWait is the most. A wait that is none, such as
// limit.Never, stays.
func jittered(wait time.Duration, jitter float64, random func() float64) time.Duration {
	if wait <= 0 || jitter <= 0 {
		return wait
	}
	longer := float64(wait) * (1 + jitter*random())
	return time.Duration(min(longer, float64(limit.MaxWait)))
}

// remoteIP returns the address of the connection's other end without its port,
// as caddy-ratelimit tells it: a proxy in between is what it names.
func remoteIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// clientIP returns the address of the client, which behind trusted proxies is the
// one that they tell.
func clientIP(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}
