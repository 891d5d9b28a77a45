package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// The bounds of the settings, the same in JSON and in the Caddyfile.
var (
	timeoutBounds     = block.Bounds[time.Duration]{Min: time.Millisecond, Max: 10 * time.Second}
	dialTimeoutBounds = block.Bounds[time.Duration]{Min: time.Millisecond, Max: 10 * time.Second}
	openBounds        = block.Bounds[time.Duration]{Min: 100 * time.Millisecond, Max: 5 * time.Minute}
	failureBounds     = block.Bounds[int]{Min: 1, Max: 1000}
	refreshBounds     = block.Bounds[time.Duration]{Min: time.Second, Max: 24 * time.Hour}
	instanceBounds    = block.Bounds[int]{Min: 1, Max: 100_000}
	maxKeysBounds     = block.Bounds[int]{Min: 1, Max: 1_000_000_000}
	ipv4PrefixBounds  = block.Bounds[int]{Min: 1, Max: 32}
	ipv6PrefixBounds  = block.Bounds[int]{Min: 1, Max: 128}
	shardBounds       = block.Bounds[int]{Min: 1, Max: limit.MaxShards}
	maxRulesBounds    = block.Bounds[int]{Min: 1, Max: rulecache.MaxMaxRules}
)

// check holds every setting of the app against its bounds.
func (a *App) check() error {
	_, err := a.onFailure()
	errs := []error{
		err,
		a.checkInstances(),
		checkGuestSecret("guest_secret", a.GuestSecret),
		maxKeysBounds.CheckSet("max_keys", a.MaxKeys),
		block.OneOf("headers", a.Headers, headersLegacy, headersIETF, headersBoth, headersOff),
		block.OneOf("reset", a.Reset, resetDelta, resetEpoch),
	}
	if a.Redis != nil {
		errs = append(errs, a.Redis.check())
	}
	if a.Rules != nil {
		errs = append(errs, a.Rules.check())
	}
	if a.Region != nil {
		errs = append(errs, a.Region.check(a.Rules != nil))
	}
	return errors.Join(errs...)
}

// text is a text of the configuration that may hold placeholders.
type text struct {
	field string
	value *string
}

// texts lists those of the app that are expanded at load: all but the address of
// PostgreSQL, which is expanded for each connection.
func (a *App) texts() []text {
	list := []text{{"guest_secret", &a.GuestSecret}}
	if r := a.Redis; r != nil {
		for i := range r.URLs {
			list = append(list, text{fmt.Sprintf("redis.urls[%d]", i), &r.URLs[i]})
		}
		list = append(list, text{"redis.key_prefix", &r.KeyPrefix}, text{"redis.master", &r.Master},
			text{"redis.sentinel_username", &r.SentinelUsername}, text{"redis.sentinel_password", &r.SentinelPassword})
		if t := r.TLS; t != nil {
			list = append(list, text{"redis.tls.ca_file", &t.CAFile}, text{"redis.tls.cert_file", &t.CertFile},
				text{"redis.tls.key_file", &t.KeyFile}, text{"redis.tls.server_name", &t.ServerName})
		}
	}
	if r := a.Region; r != nil {
		list = append(list, text{"region.name", &r.Name})
	}
	if r := a.Rules; r != nil {
		list = append(list, text{"rules.table", &r.Table}, text{"rules.tenants", &r.Tenants}, text{"rules.channel", &r.Channel})
	}
	return list
}

// expand replaces the placeholders in the app's texts.
func (a *App) expand() error {
	for _, text := range a.texts() {
		expanded, err := block.Expand(*text.value)
		if err != nil {
			return fmt.Errorf("%s: %w", text.field, err)
		}
		*text.value = expanded
	}
	return nil
}

// warnOfInstances tells of settings that only matter with Redis, and of one that
// is missing there: shares of a region are known by some of its gateways only for
// a while, and each of the others gives its part of them.
func (a *App) warnOfInstances() {
	switch {
	case a.Redis == nil && (a.Fallback != "" || a.Instances != nil):
		a.logger.Warn("fallback and instances have no effect without redis: each gateway allows the whole limit")
	case a.Redis != nil && a.Region != nil && a.Region.Auto && a.Instances == nil:
		a.logger.Warn("region auto needs instances: without it, a gateway that does not know its region's share acts as if it were the only one of the region: set instances, or instances auto")
	}
	if a.Redis != nil && a.Redis.Linger != 0 {
		a.logger.Warn("redis.linger has no effect any more: requests share calls without waiting for each other")
	}
}

// UnmarshalJSON reads the handler's fields. An error names the path of what is
// wrong and says what is allowed there.
func (h *Handler) UnmarshalJSON(text []byte) error {
	type fields Handler // without this method
	return decode(text, (*fields)(h))
}

// UnmarshalJSON reads the app's fields. An error names the path of what is wrong
// and says what is allowed there.
func (a *App) UnmarshalJSON(text []byte) error {
	type fields App // without this method
	return decode(text, (*fields)(a))
}

// decode reads JSON into a struct as Caddy does, which is to refuse unknown
// fields, and says where it went wrong: encoding/json knows types, not paths.
func decode(text []byte, dst any) error {
	err := caddy.StrictUnmarshalJSON(text, dst)
	if err == nil {
		return nil
	}
	if fault := faultIn(text, reflect.TypeOf(dst).Elem(), ""); fault != nil {
		return fault
	}
	return err
}

// faultIn returns the first part of the JSON that does not fit the type, in the
// order of paths. It quotes nothing but the names of fields: a value may be a secret.
func faultIn(text json.RawMessage, kind reflect.Type, path string) error {
	if string(text) == "null" {
		return nil
	}
	switch {
	case kind.Kind() == reflect.Pointer:
		return faultIn(text, kind.Elem(), path)
	case reflect.PointerTo(kind).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return misfit(text, kind, path)
	case kind.Kind() == reflect.Struct:
		return faultInFields(text, kind, path)
	case kind.Kind() == reflect.Slice:
		return faultInList(text, kind, path)
	case kind.Kind() == reflect.Map:
		return faultInMap(text, kind, path)
	}
	return misfit(text, kind, path)
}

func faultInFields(text json.RawMessage, kind reflect.Type, path string) error {
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	types := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(kind) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			types[name] = field.Type
		}
	}
	known := slices.Sorted(maps.Keys(types))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		at := slices.IndexFunc(known, func(other string) bool { return strings.EqualFold(name, other) })
		if at < 0 {
			return fmt.Errorf("%s: unknown field: %s", below(path, block.Clipped(name)), block.Allowed(name, known))
		}
		if err := faultIn(values[name], types[known[at]], below(path, name)); err != nil {
			return err
		}
	}
	return nil
}

func faultInList(text json.RawMessage, kind reflect.Type, path string) error {
	var values []json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	for i, value := range values {
		if err := faultIn(value, kind.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func faultInMap(text json.RawMessage, kind reflect.Type, path string) error {
	var values map[string]json.RawMessage
	if json.Unmarshal(text, &values) != nil {
		return misfit(text, kind, path)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := faultIn(values[name], kind.Elem(), below(path, block.Clipped(name))); err != nil {
			return err
		}
	}
	return nil
}

// misfit returns an error unless the JSON fits the type as a whole.
func misfit(text json.RawMessage, kind reflect.Type, path string) error {
	if json.Unmarshal(text, reflect.New(kind).Interface()) == nil {
		return nil
	}
	if path == "" {
		path = "the module"
	}
	return fmt.Errorf("%s: %s is no value for it: allowed is %s", path, kindOf(text), allowedFor(kind))
}

// kindOf says what a value is.
func kindOf(text json.RawMessage) string {
	switch text[0] {
	case '"':
		return "a text"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return string(text)
	default:
		return "the number " + block.Clipped(string(text))
	}
}

// allowedFor says what a type takes.
func allowedFor(kind reflect.Type) string {
	switch kind {
	case reflect.TypeFor[caddy.Duration]():
		return `a text with a number and a unit, such as "5ms" or "30s", or a whole number of nanoseconds`
	case reflect.TypeFor[Prefetch]():
		return `a whole number or "auto"`
	}
	switch kind.Kind() {
	case reflect.String:
		return "a text in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list: [ … ]"
	default:
		return "an object: { … }"
	}
}

// below is the path of a field in what is at a path.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Interface guards
var (
	_ json.Unmarshaler = (*Handler)(nil)
	_ json.Unmarshaler = (*App)(nil)
)
