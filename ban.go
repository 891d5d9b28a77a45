package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
)

// Ban keeps whoever empties a bucket out of its route, on all gateways, until the time
// is over.
type Ban struct {
	// For how long, from 1 s to 30 days. Required.
	For caddy.Duration `json:"for,omitempty"`

	// The status of a request that is banned: 429 or 403. Default: 429.
	Status int `json:"status,omitempty"`
}

var banBounds = block.Bounds[time.Duration]{Min: time.Second, Max: limit.MaxBan}

// banTime returns how long the handler bans, 0 where it does not.
func (h *Handler) banTime() (time.Duration, error) {
	if h.Ban == nil {
		return 0, nil
	}
	length := time.Duration(h.Ban.For)
	if err := banBounds.Check("ban.for", length); err != nil {
		return 0, err
	}
	if s := h.Ban.Status; s != 0 && s != http.StatusTooManyRequests && s != http.StatusForbidden {
		return 0, fmt.Errorf("ban.status: %d is not allowed: allowed are 429 and 403", s)
	}
	if template := h.identity.tenant.template; !strings.Contains(template, "{") {
		return 0, errors.New("ban: the tenant has no placeholder, so all clients share one bucket, and one of them could have all of them banned")
	}
	h.warnOfBans()
	return length.Truncate(time.Millisecond), nil
}

// parseBan reads `ban <duration> [403|429]`.
func (h *Handler) parseBan(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 1 || len(args) > 2 {
		return d.Err("ban needs a duration, such as `ban 1h`, and takes 403 behind it")
	}
	length, err := block.ParseDuration("ban", args[0], banBounds)
	if err != nil {
		return d.WrapErr(err)
	}
	h.Ban = &Ban{For: caddy.Duration(length)}
	if len(args) == 2 {
		switch args[1] {
		case "403":
			h.Ban.Status = http.StatusForbidden
		case "429":
			h.Ban.Status = http.StatusTooManyRequests
		default:
			return d.Errf("ban: %q is not allowed: allowed are 429 and 403", block.Clipped(args[1]))
		}
	}
	return nil
}

// Why a request was refused.
const (
	reasonRate = "rate"
	reasonBan  = "ban"
)

// reason tells why the charge refused its request.
func (c *charge) reason() string {
	if c.state.Banned > 0 {
		return reasonBan
	}
	return reasonRate
}

// refusalStatus is the status of a request that the charge refused.
func (c *charge) refusalStatus() int {
	if c.state.Banned > 0 && c.zone.banStatus != 0 {
		return c.zone.banStatus
	}
	return http.StatusTooManyRequests
}

// maxBans is how many bans a gateway remembers for its operators.
const maxBans = 10_000

// bans are those that this gateway has seen. They hold in Redis, and where that cannot
// be asked in memory; these are for the eye.
type bans struct {
	mu   sync.Mutex
	seen map[limit.Key]ban
}

// ban is one that a gateway has seen.
type ban struct {
	tenant string
	until  time.Time
}

// note remembers a ban, and reports whether it is news.
func (b *bans) note(key limit.Key, tenant string, rest time.Duration, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, found := b.seen[key]; found && known.until.After(now) {
		return false
	}
	if b.seen == nil {
		b.seen = map[limit.Key]ban{}
	}
	if len(b.seen) >= maxBans {
		b.sweep(now)
	}
	if len(b.seen) >= maxBans {
		return true
	}
	key.Tenant, key.Route = strings.Clone(key.Tenant), strings.Clone(key.Route)
	b.seen[key] = ban{tenant: strings.Clone(tenant), until: now.Add(rest)}
	return true
}

// sweep forgets those that are over.
func (b *bans) sweep(now time.Time) {
	for key, known := range b.seen {
		if !known.until.After(now) {
			delete(b.seen, key)
		}
	}
}

// lift forgets one that was ended.
func (b *bans) lift(key limit.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.seen, key)
}

// list calls visit with each that holds.
func (b *bans) list(now time.Time, visit func(key limit.Key, known ban)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep(now)
	for key, known := range b.seen {
		visit(key, known)
	}
}

// noteBan tells of a ban that a charge has met or a settlement has begun.
func (a *App) noteBan(c *charge, rest time.Duration) {
	if !a.bans.note(c.bucket.Key, c.told(), rest, time.Now()) {
		return
	}
	c.zone.counts.countBan()
	a.tellBan(c, rest)
}

// bannedEvent is the event of a ban that this gateway sees for the first time.
const bannedEvent = "rate_limit_banned"

// tellBan emits the event, and writes a line.
func (a *App) tellBan(c *charge, rest time.Duration) {
	data := map[string]any{"zone": c.zone.name, "route": c.zone.name, "seconds": int64(rest.Round(time.Second) / time.Second)}
	if c.zone.logKey {
		data["tenant"] = strings.Clone(c.told())
	}
	a.events.tell(happening{name: bannedEvent, origin: a.origin, data: data})
}
