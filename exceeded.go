package ratelimit

import (
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// exceeded is what the event `rate_limit_exceeded` tells of a refusal.
type exceeded struct {
	origin   *caddy.Context // of the handler that refused
	zone     string
	route    string
	tenant   string // blank unless log_key asks for it
	remoteIP string
	clientIP string // behind trusted proxies another than remoteIP
	wait     time.Duration
	shadow   bool // whether the request passed all the same
}

// data is what subscribers get. What may be a part of a request's buffer is copied,
// because they may keep it.
func (e *exceeded) data() map[string]any {
	data := map[string]any{"zone": e.zone, "route": e.route, "remote_ip": e.remoteIP, "client_ip": strings.Clone(e.clientIP)}
	if e.wait != limit.Never {
		data["wait"] = e.wait
	}
	if e.tenant != "" {
		data["tenant"] = strings.Clone(e.tenant)
	}
	if e.shadow {
		data["shadow"] = true
	}
	return data
}

// tellRefusal logs the refusal and emits its event. The charge then holds the
// wait that the client is told, too.
func (h *Handler) tellRefusal(r *http.Request, c *charge) {
	c.state.RetryAfter = jittered(c.state.RetryAfter, h.Jitter, rand.Float64)
	said := refusal{zone: c.zone.name, source: c.source, wait: c.state.RetryAfter, remoteIP: remoteIP(r), clientIP: clientIP(r)}
	if h.LogKey {
		said.tenant = c.told()
	}
	if h.LogAll {
		h.app.refusals.write(said)
	} else {
		h.app.refusals.note(c.bucket.Key, said)
	}
	h.app.memory.top.note(c)
	h.emitExceeded(r, c)
}

// tellShadows emits the events of the charges that would have refused the
// request if they were enforced.
func (h *Handler) tellShadows(r *http.Request, charges []charge) {
	for i := range charges {
		if charges[i].outcome == outcomeShadow {
			h.emitExceeded(r, &charges[i])
		}
	}
}

func (h *Handler) emitExceeded(r *http.Request, c *charge) {
	if !h.app.events.wanted() {
		return
	}
	said := exceeded{
		origin: &h.ctx, zone: c.zone.name, route: c.zone.route, remoteIP: remoteIP(r), clientIP: clientIP(r),
		wait: c.state.RetryAfter, shadow: c.outcome == outcomeShadow,
	}
	if h.LogKey {
		said.tenant = c.told()
	}
	h.app.events.offer(c.bucket.Key, said)
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
