package ratelimit

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

const defaultTenant = "{http.request.header.X-Api-Key}"

// The words of the options guest and unknown.
const (
	guestDeny  = "deny"
	guestAllow = "allow"
	guestIP    = "ip"

	unknownDefault   = "default"
	unknownGuestWord = "guest"
	unknownDeny      = "deny"
)

// visitor is whose request it is, by the names that different places know.
type visitor struct {
	shown string // in placeholders
	key   string // in keys: escaped, or one of our own names
	rules string // in rules; blank where no rule can name the visitor

	rulecache.Membership // what is known of it beside rules
}

// tenantVisitor is a client that named itself. What it says never matches the
// rows that are meant for many.
func tenantVisitor(tenant string) visitor {
	v := visitor{shown: tenant, key: limit.EscapeName(tenant), rules: tenant}
	if tenant == rulecache.Wildcard || strings.HasPrefix(tenant, "~") {
		v.rules = ""
	}
	return v
}

// standing is what a request's identity means for it.
type standing uint8

const (
	standingLimited      standing = iota // it has a bucket
	standingFree                         // it is not limited
	standingUnauthorized                 // it may not pass without a tenant
)

// identity finds out whose request it is.
type identity struct {
	tenant  keySource
	hashed  bool
	guest   string       // the word of the option
	guests  *guestSource // for guest ip
	unknown string       // the word of the option
	plan    *planSource  // nil: what the request says is no plan
}

// newIdentity reads the handler's options.
func newIdentity(h *Handler) (identity, error) {
	template := h.Tenant
	if template == "" {
		template = defaultTenant
	}
	if strings.TrimSpace(template) == "" {
		return identity{}, errors.New("tenant: a blank text names no tenant: name a placeholder such as {header.X-Api-Key}")
	}
	if err := errors.Join(checkPlaceholders(template), checkApart(template)); err != nil {
		return identity{}, fmt.Errorf("tenant: %w", err)
	}
	if err := h.checkStandings(); err != nil {
		return identity{}, err
	}
	tenant := newKeySource(template, h.logger)
	id := identity{tenant: tenant, hashed: h.TenantHashed, guest: h.Guest, unknown: h.Unknown}
	h.warnOfTenant(&id.tenant)
	plan, err := newPlanSource(h)
	if err != nil {
		return identity{}, err
	}
	id.plan = plan
	if h.Guest != guestIP {
		return id, nil
	}
	id.guests = &guestSource{
		secret:     []byte(h.app.GuestSecret),
		ipv4Prefix: orDefault(h.IPv4Prefix, defaultIPv4Prefix),
		ipv6Prefix: orDefault(h.IPv6Prefix, defaultIPv6Prefix),
		logger:     h.logger,
	}
	if h.app.GuestSecret != "" {
		return id, nil
	}
	if h.app.Redis != nil {
		return identity{}, errors.New("guest: ip with redis needs the global option guest_secret, the same on every gateway, because addresses must not be guessable from their hashes")
	}
	id.guests.secret = processSecret()
	return id, nil
}

// checkStandings refuses words that do not go together, and warns of those that
// seldom mean what they do.
func (h *Handler) checkStandings() error {
	if h.Guest != guestIP {
		const only = "it is for guests that are limited by their address: write `guest ip`, or leave it out"
		switch {
		case h.IPv4Prefix != 0:
			return errors.New("ipv4_prefix: " + only)
		case h.IPv6Prefix != 0:
			return errors.New("ipv6_prefix: " + only)
		}
	}
	known := h.app.namesTenants()
	switch {
	case h.Unknown == unknownDeny && !known:
		return errors.New("unknown: with deny each request is answered with 401, because no rule names a tenant: name the table of rules in the global option (`rules`), add a static `rule`, or leave `unknown` out")
	case h.Unknown == unknownGuestWord && !known && (h.Guest == "" || h.Guest == guestDeny):
		return errors.New("unknown: with guest, and `guest deny`, each request is answered with 401, because no rule names a tenant: name the table of rules in the global option (`rules`), add a static `rule`, or write `guest ip`")
	case h.Unknown == unknownGuestWord && !known:
		h.logger.Warn("no rule names a tenant, so with `unknown guest` every client is a guest, whatever key it sends")
	case h.Unknown == unknownGuestWord && h.Guest == guestAllow:
		h.logger.Warn("with `unknown guest` and `guest allow` a client that makes up a key is not limited at all: write `guest ip` or `unknown deny`")
	}
	return nil
}

// namesTenants reports whether a rule may name a tenant of its own.
func (a *App) namesTenants() bool {
	return a.Rules != nil || len(a.Plans) > 0 || slices.ContainsFunc(a.StaticRules, func(r StaticRule) bool {
		return r.Tenant != rulecache.Wildcard && !strings.HasPrefix(r.Tenant, "~")
	})
}

// of returns the visitor and what its identity means.
func (id *identity) of(r *http.Request, repl *caddy.Replacer, rules ruleSet) (visitor, standing, error) {
	tenant, err := id.tenant.of(r, repl)
	if err != nil {
		return visitor{}, standingUnauthorized, err
	}
	if tenant == "" {
		return id.guestOf(r)
	}
	v := tenantVisitor(id.name(tenant))
	v.Membership = rules.membership(v.rules)
	if v.Plan == "" {
		if v.Plan, err = id.plan.of(r, repl); err != nil {
			return visitor{}, standingUnauthorized, err
		}
	}
	if v.Blocked || id.accepts(v, rules) {
		return v, standingLimited, nil
	}
	if id.unknown == unknownDeny {
		return v, standingUnauthorized, nil
	}
	return id.guestOf(r)
}

// name returns the name by which rules and keys know a tenant.
func (id *identity) name(tenant string) string {
	if !id.hashed {
		return tenant
	}
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:])
}

// accepts reports whether a tenant is limited under its own name.
func (id *identity) accepts(v visitor, rules ruleSet) bool {
	return id.unknown == unknownDefault || id.unknown == "" || rules.knows(v.rules) || v.Plan != "" && rules.knows(v.Plan)
}

func (id *identity) guestOf(r *http.Request) (visitor, standing, error) {
	switch id.guest {
	case guestAllow:
		return visitor{}, standingFree, nil
	case guestIP:
		if early(r) {
			return visitor{}, standingUnauthorized, errEarly
		}
		name := id.guests.of(r)
		return visitor{shown: name, key: name, rules: rulecache.Guest}, standingLimited, nil
	default:
		return visitor{}, standingUnauthorized, nil
	}
}

// caddyDrops tells whether this Caddy drops a header of that name from requests. One
// that does has a field that allows it; Caddy before 2.11.4 keeps them all.
func caddyDrops(header string) bool {
	server := reflect.TypeFor[caddyhttp.Server]()
	_, underscores := server.FieldByName("ExpectedUnderscoreHeaders")
	_, dots := server.FieldByName("ExpectedDotHeaders")
	return underscores && strings.Contains(header, "_") || dots && strings.Contains(header, ".")
}

// warnOfTenant tells what the operator may not have meant.
func (h *Handler) warnOfTenant(source *keySource) {
	for _, name := range source.once.headers {
		if caddyDrops(name) {
			h.logger.Warn("caddy drops headers with an underscore or a dot in their name unless the server expects them, so this tenant may always be missing",
				zap.String("header", name))
		}
	}
	if !strings.Contains(source.template, "{") {
		h.logger.Warn("the tenant has no placeholder, so all clients share one bucket", zap.String("tenant", source.template))
		return
	}
	h.warnOfPlaceholders("tenant", source.template)
	if source.header == "Authorization" {
		h.logger.Warn("the whole header Authorization is the tenant: a client that logs in again, or spells it otherwise, has a fresh bucket, and its secret is in Redis and in the rules; authenticate first and use {http.auth.user.id}, or at least write `hashed`",
			zap.String("tenant", source.template))
	}
	shared := h.app.Redis != nil || h.app.Rules != nil
	if shared && h.Unknown == "" && !strings.Contains(source.template, "{http.auth.") && !strings.Contains(source.template, "{http.request.tls.client.") {
		h.logger.Warn("nothing checks the tenant, so a client that makes up keys gets a fresh bucket for each: set `unknown guest` or `unknown deny`, or authenticate first",
			zap.String("tenant", source.template))
	}
}

func orDefault(n, fallback int) int {
	if n == 0 {
		return fallback
	}
	return n
}

const (
	defaultIPv4Prefix = 32
	defaultIPv6Prefix = 64

	// guestName begins the name of a guest's bucket. No tenant's escaped name has
	// a tilde in it.
	guestName = "~ip-"

	// unknownGuest is the one bucket of all whose address is not known, as on a
	// Unix socket.
	unknownGuest = guestName + "unknown"
)

// guestSource names guests by a hash of their network, which nobody can turn
// back into an address without the secret.
type guestSource struct {
	secret                 []byte
	ipv4Prefix, ipv6Prefix int
	logger                 *zap.Logger
	warned                 sync.Once
}

// minGuestSecret is in bytes: what is shorter can be tried out.
const minGuestSecret = 16

// checkGuestSecret returns an error unless the secret is long enough, or there is none.
func checkGuestSecret(field, secret string) error {
	if secret != "" && len(secret) < minGuestSecret {
		return fmt.Errorf("%s: it is %d bytes long, and so short that it can be guessed: allowed are %d or more, such as what `openssl rand -hex 32` prints",
			field, len(secret), minGuestSecret)
	}
	return nil
}

// processSecret hashes guests where nobody else has to find the same bucket.
var processSecret = sync.OnceValue(func() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
})

// of returns the name of the guest's bucket.
func (s *guestSource) of(r *http.Request) string {
	return s.name(clientIP(r))
}

// name returns the name of the bucket of a guest with an address.
func (s *guestSource) name(text string) string {
	network, ok := networkOf(text, s.ipv4Prefix, s.ipv6Prefix)
	if !ok {
		s.warned.Do(func() {
			s.logger.Warn("a guest has no IP address, all such guests share one bucket", zap.String("address", text))
		})
		return unknownGuest
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(network.String()))
	return guestName + hex.EncodeToString(mac.Sum(nil))
}

// networkOf returns the network that an address is in, the same for every
// spelling of it.
func networkOf(text string, ipv4Prefix, ipv6Prefix int) (netip.Prefix, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	address = address.Unmap().WithZone("")
	bits := ipv6Prefix
	if address.Is4() {
		bits = ipv4Prefix
	}
	network, err := address.Prefix(bits)
	return network, err == nil
}

// costSource reads from a request how many tokens it takes.
type costSource struct {
	fixed    int64
	template string // where it is not fixed
}

var errCost = fmt.Errorf("the request's cost is not a whole number from 1 to %d", limit.MaxCapacity)

// newCostSource reads a number or a text with placeholders; blank is 1.
func newCostSource(text string) (costSource, error) {
	if text == "" {
		return costSource{fixed: 1}, nil
	}
	if strings.Contains(text, "{") {
		if err := checkPlaceholders(text); err != nil {
			return costSource{}, fmt.Errorf("cost: %w", err)
		}
		return costSource{template: text}, nil
	}
	n, err := parseCost(text)
	if err != nil {
		return costSource{}, errors.New("cost: allowed are a whole number from 1 to 2147483647 and a placeholder")
	}
	return costSource{fixed: n}, nil
}

// of returns the request's cost. An error is the client's fault, or that of the
// handler that set the placeholder, and nothing is charged for it.
func (c *costSource) of(repl *caddy.Replacer) (int64, error) {
	if c.template == "" {
		return c.fixed, nil
	}
	return parseCost(strings.TrimSpace(repl.ReplaceAll(c.template, "")))
}

func parseCost(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > limit.MaxCapacity {
		return 0, errCost
	}
	return n, nil
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
