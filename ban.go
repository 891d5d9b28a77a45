package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/adminapi"
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

// warnOfBans tells of a ban that others than the tenant may begin.
func (h *Handler) warnOfBans() {
	if tenant := h.identity.tenant.template; h.Guest != guestIP && !strings.Contains(tenant, "{http.auth.") && !h.identity.tenant.address {
		h.logger.Warn("nothing checks the tenant, so whoever knows its name could have it banned: limit by the address and the name together, or authenticate first",
			zap.String("tenant", tenant))
	}
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
	reasonRate        = "rate"
	reasonBan         = "ban"
	reasonConcurrency = "concurrency"
)

// reason tells why the charge refused its request.
func (c *charge) reason() string {
	if c.state.Banned > 0 {
		return reasonBan
	}
	if c.isPlace() {
		return reasonConcurrency
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
const maxBans = adminapi.MaxBans

// bans are those that this gateway has seen. They hold in Redis, and where that cannot
// be asked in memory; these are for the eye.
type bans struct {
	mu    sync.Mutex
	seen  map[limit.Key]ban
	swept time.Time
}

// sweepEvery bounds what a flood costs that finds no room: each sweep looks at all.
const sweepEvery = time.Second

// ban is one that a gateway has seen.
type ban struct {
	tenant string // as operators are told
	zone   string
	until  time.Time
}

// note remembers a ban, and reports whether it is news. One that has no room is none:
// it would be with every request.
func (b *bans) note(key limit.Key, seen ban, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, found := b.seen[key]; found && known.until.After(now) {
		return false
	}
	if b.seen == nil {
		b.seen = map[limit.Key]ban{}
	}
	if len(b.seen) >= maxBans && now.Sub(b.swept) >= sweepEvery {
		b.sweep(now)
	}
	if len(b.seen) >= maxBans {
		return false
	}
	key.Tenant, key.Route, seen.tenant = strings.Clone(key.Tenant), strings.Clone(key.Route), strings.Clone(seen.tenant)
	b.seen[key] = seen
	return true
}

// sweep forgets those that are over.
func (b *bans) sweep(now time.Time) {
	b.swept = now
	for key, known := range b.seen {
		if !known.until.After(now) {
			delete(b.seen, key)
		}
	}
}

// lift forgets one that was ended, and reports whether it held.
func (b *bans) lift(key limit.Key, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, found := b.seen[key]
	delete(b.seen, key)
	return found && known.until.After(now)
}

// holding is how many hold.
func (b *bans) holding(now time.Time) (n int) {
	b.list(now, func(limit.Key, ban) { n++ })
	return n
}

// rest is how long it takes until a ban is over, 0 where none is known.
func (b *bans) rest(key limit.Key, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, b.seen[key].until.Sub(now))
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
	now := time.Now()
	if !a.bans.note(c.bucket.Key, ban{tenant: c.told(), zone: c.zone.name, until: now.Add(rest)}, now) {
		return
	}
	c.zone.counts.countBan()
	a.tellBan(c, rest)
}

// bannedEvent is the event of a ban that this gateway sees for the first time.
const bannedEvent = "rate_limit_banned"

// tellBan emits the event. It waits with those of refusals: a flood of bans is no
// change of this gateway's state, and hides none.
func (a *App) tellBan(c *charge, rest time.Duration) {
	data := map[string]any{"zone": c.zone.name, "route": c.zone.route, "seconds": int64(rest.Round(time.Second) / time.Second)}
	if c.zone.logKey {
		data["tenant"] = strings.Clone(c.told())
	}
	a.events.queue(a.events.refusals, happening{name: bannedEvent, origin: a.origin, data: data})
}

// answerBans lists the bans that this gateway has seen and that hold.
func answerBans(_ context.Context, app *App, q *adminapi.Query) (any, error) {
	most, err := q.Number("limit", adminapi.DefaultBans, adminapi.MaxBans)
	if err != nil {
		return nil, badQuery(err)
	}
	now := time.Now()
	list := []adminapi.Ban{}
	app.bans.list(now, func(key limit.Key, known ban) {
		list = append(list, adminapi.Ban{
			Tenant: known.tenant, Stored: adminapi.StoredName(known.tenant, key.Tenant), Key: key.Tenant,
			Route: known.zone, Seconds: seconds(known.until.Sub(now)),
		})
	})
	slices.SortFunc(list, func(a, b adminapi.Ban) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Key, b.Key))
	})
	return &adminapi.Bans{Seen: len(list), Bans: list[:min(len(list), int(most))]}, nil
}
