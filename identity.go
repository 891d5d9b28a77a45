package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

const defaultTenant = "{http.request.header.X-Api-Key}"

// visitor is whose request it is, by the names that different places know.
type visitor struct {
	shown string // in placeholders
	key   string // in keys: escaped, or one of our own names
	rules string // in rules; blank where no rule can name the visitor
}

// tenantVisitor is a client that named itself. What it says never matches the
// rows that are meant for many.
func tenantVisitor(tenant string) visitor {
	v := visitor{shown: tenant, key: limit.EscapeName(tenant), rules: tenant}
	if tenant == rulecache.Wildcard || tenant == rulecache.Guest || tenant == blankTenant {
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
	return a.Rules != nil || slices.ContainsFunc(a.StaticRules, func(r StaticRule) bool {
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
	if id.accepts(v, rules) {
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
	return id.unknown == unknownDefault || id.unknown == "" || rules.knows(v.rules)
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
