package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
)

// keySource reads a name from a request.
type keySource struct {
	template string

	// header is set where the template is one header and nothing else, so that
	// the common case needs no replacer.
	header string

	// once are those parts of a request that it may send one time at most: which of
	// two values counts must not depend on who reads them.
	once onlyOnce

	// joints are the bytes of the text between several placeholders. They are
	// escaped in values, so that no two lists of values make one name.
	joints string

	// address is whether the name is made of the client's address.
	address bool

	// auth notes whether an authentication has run before, nil where none is asked for.
	auth *authWatch
}

// onlyOnce are the names of what a request may send one time at most.
type onlyOnce struct{ headers, queries, cookies []string }

var (
	headerPlaceholder = regexp.MustCompile(`\{http\.request\.header\.([^{}]+)\}`)
	queryPlaceholder  = regexp.MustCompile(`\{http\.request\.uri\.query\.([^{}]+)\}`)
	cookiePlaceholder = regexp.MustCompile(`\{http\.request\.cookie\.([^{}]+)\}`)
	addressOf         = regexp.MustCompile(`\{http\.(request\.remote|vars\.client_ip)\b`)
	authPlaceholder   = regexp.MustCompile(`\{(http\.auth\.[^{}]+)\}`)
)

var errRepeated = errors.New("the header, query parameter or cookie that names the tenant was sent more than once")

// newKeySource reads a template.
func newKeySource(template string, logger *zap.Logger) keySource {
	source := keySource{template: template, address: addressOf.MatchString(template)}
	if placeholders := anyPlaceholder.FindAllString(template, -1); len(placeholders) > 1 {
		source.joints = anyPlaceholder.ReplaceAllString(template, "") + "%"
	}
	for _, match := range headerPlaceholder.FindAllStringSubmatch(template, -1) {
		name := http.CanonicalHeaderKey(match[1])
		source.once.headers = append(source.once.headers, name)
		if match[0] == template {
			source.header = name
		}
	}
	for _, match := range queryPlaceholder.FindAllStringSubmatch(template, -1) {
		source.once.queries = append(source.once.queries, match[1])
	}
	for _, match := range cookiePlaceholder.FindAllStringSubmatch(template, -1) {
		source.once.cookies = append(source.once.cookies, match[1])
	}
	if match := authPlaceholder.FindStringSubmatch(template); match != nil {
		source.auth = &authWatch{placeholder: match[1], logger: logger}
	}
	return source
}

// errEarly is why a request is answered with 425.
var errEarly = errors.New("the request came before its TLS handshake was complete, and the address it is limited by may not be its own")

// early reports whether the request's address may be another's: data that QUIC takes
// before a handshake is complete needs no answer to get here.
func early(r *http.Request) bool { return r.TLS != nil && !r.TLS.HandshakeComplete }

// joinLists lets a request send headers that are lists in several lines, which
// Caddy joins with a comma.
func (s *keySource) joinLists() {
	s.once.headers = slices.DeleteFunc(s.once.headers, isList)
}

// isList reports whether a header is a list, which proxies and clients may extend
// by a line of their own.
func isList(name string) bool {
	switch name {
	case "Forwarded", "Via", "Cache-Control", "Accept":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Accept-")
}

// of returns the name, blank if the request has none. An error means that the
// request is ambiguous.
func (s *keySource) of(r *http.Request, repl *caddy.Replacer) (string, error) {
	if s.once.repeated(r) {
		return "", errRepeated
	}
	if s.address && early(r) {
		return "", errEarly
	}
	if s.header == "" {
		s.auth.look(repl)
		return s.replace(repl), nil
	}
	values := r.Header[s.header]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return strings.TrimSpace(values[0]), nil
	}
	return strings.TrimSpace(strings.Join(values, ",")), nil
}

// repeated reports whether the request sends any of them more than once. Cookies
// are found by any spelling of their name, because Caddy finds them so.
func (o *onlyOnce) repeated(r *http.Request) bool {
	for _, name := range o.headers {
		if len(r.Header[name]) > 1 {
			return true
		}
	}
	if len(o.queries) > 0 {
		values := r.URL.Query()
		for _, name := range o.queries {
			if len(values[name]) > 1 {
				return true
			}
		}
	}
	if len(o.cookies) == 0 {
		return false
	}
	cookies := r.Cookies()
	for _, name := range o.cookies {
		if countCookies(cookies, name) > 1 {
			return true
		}
	}
	return false
}

func countCookies(cookies []*http.Cookie, name string) (n int) {
	for _, cookie := range cookies {
		if strings.EqualFold(cookie.Name, name) {
			n++
		}
	}
	return n
}

// authWatch tells, at the first request, that nothing has authenticated it.
type authWatch struct {
	placeholder string // without braces
	logger      *zap.Logger
	looked      atomic.Bool
}

func (a *authWatch) look(repl *caddy.Replacer) {
	if a == nil || a.looked.Load() || a.looked.Swap(true) {
		return
	}
	if _, set := repl.Get(a.placeholder); !set {
		a.logger.Warn("the first request was limited before it was authenticated, so the tenant's placeholder had no value: put rate_limit after the authentication, with the global option `order rate_limit after basic_auth` or in a route block",
			zap.String("placeholder", "{"+a.placeholder+"}"))
	}
}

// replace returns the template with the request's values, blank where every one
// of them is.
func (s *keySource) replace(repl *caddy.Replacer) string {
	blank := strings.Contains(s.template, "{")
	name, _ := repl.ReplaceFunc(s.template, func(_ string, value any) (any, error) {
		text := strings.TrimSpace(caddy.ToString(value))
		blank = blank && text == ""
		return escapeBytes(text, s.joints), nil
	})
	if blank {
		return ""
	}
	return strings.TrimSpace(name)
}

// escapeBytes writes those bytes of text as %XX that are among special.
func escapeBytes(text, special string) string {
	if special == "" || !strings.ContainsAny(text, special) {
		return text
	}
	var out strings.Builder
	for i := range len(text) {
		if strings.IndexByte(special, text[i]) >= 0 {
			fmt.Fprintf(&out, "%%%02X", text[i])
		} else {
			out.WriteByte(text[i])
		}
	}
	return out.String()
}

var (
	anyPlaceholder = regexp.MustCompile(`\{([^{}]*)\}`)
	adjacent       = regexp.MustCompile(`\{[^{}]*\}\{[^{}]*\}`)
	shorthand      = regexp.MustCompile(`\{(header|cookie|query|vars|path|uri|host|hostport|method|client_ip|remote|remote_host|labels|re)(\.[^{}]*)?\}`)
)

// The names of placeholders that Caddy has, by what stands before them. Other
// modules may add some, so one that is missing here is no error by itself.
var placeholderNames = map[string][]string{
	"": {
		"http", "env", "file", "system", "time",
		"header", "cookie", "query", "vars", "path", "host", "method", "uri", "client_ip", "remote", "remote_host", "labels", "err", "resp", "file_match",
	},
	"http": {
		"request", "response", "vars", "auth", "error", "matchers", "regexp", "reverse_proxy", "intercept", "rate_limit", "handlers",
		"shutting_down", "time_until_shutdown",
	},
	"http.request": {
		"body", "body_base64", "cookie", "duration", "duration_ms", "header", "host", "hostport", "local", "method", "port", "proto", "remote",
		"scheme", "tls", "uri", "uri_escaped", "uuid", "orig_method", "orig_uri",
	},
	"http.auth": {"user"},
}

// checkPlaceholders returns why a text with placeholders cannot be what was meant.
func checkPlaceholders(template string) error {
	if rest := anyPlaceholder.ReplaceAllString(template, ""); strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("%q has a brace without its counterpart", block.Clipped(template))
	}
	for _, other := range []string{"{remote.host}", "{remote.ip}"} {
		if strings.Contains(template, other) {
			return fmt.Errorf("no placeholder is called %s; did you mean {http.request.remote.host}, in a Caddyfile {remote_host}?", other)
		}
	}
	if short := shorthand.FindString(template); short != "" {
		return fmt.Errorf("%s is a shorthand of the Caddyfile: in JSON, write it out, such as {http.request.header.X-Api-Key}", block.Clipped(short))
	}
	for _, match := range anyPlaceholder.FindAllStringSubmatch(template, -1) {
		if meant := meantPlaceholder(match[1]); meant != "" && strings.Contains(match[1], ".") {
			return fmt.Errorf("no placeholder is called {%s}; did you mean {%s}?", block.Clipped(match[1]), block.Clipped(meant))
		}
	}
	return nil
}

// meantPlaceholder returns the name that was probably meant by one that Caddy
// does not have, and nothing where that cannot be said.
func meantPlaceholder(name string) string {
	parts := strings.Split(name, ".")
	for i, before := range []string{"", "http", "http.request"} {
		if i >= len(parts) || strings.Join(parts[:i], ".") != before {
			return ""
		}
		if slices.Contains(placeholderNames[before], parts[i]) {
			continue
		}
		near := limit.Nearest(parts[i], placeholderNames[before]...)
		if near == "" {
			return ""
		}
		return strings.Join(append(slices.Clone(parts[:i]), append([]string{near}, parts[i+1:]...)...), ".")
	}
	return ""
}

// checkApart refuses placeholders without a text between them: nothing tells
// their values apart, so that two clients would share a bucket.
func checkApart(template string) error {
	pair := adjacent.FindString(template)
	if pair == "" {
		return nil
	}
	return fmt.Errorf("nothing stands between the placeholders of %s, so that ab and c are the same as a and bc: write a separator between them, such as %s",
		block.Clipped(pair), block.Clipped(strings.Replace(pair, "}{", "}|{", 1)))
}

// warnOfPlaceholders tells of placeholders that are none of Caddy's own.
func (h *Handler) warnOfPlaceholders(option, template string) {
	for _, match := range anyPlaceholder.FindAllStringSubmatch(template, -1) {
		namespace, _, _ := strings.Cut(match[1], ".")
		if slices.Contains([]string{"http", "env", "file", "system", "time"}, namespace) {
			continue
		}
		fields := []zap.Field{zap.String("option", option), zap.String("placeholder", block.Clipped(match[0]))}
		if meant := meantPlaceholder(match[1]); meant != "" {
			fields = append(fields, zap.String("did_you_mean", "{"+meant+"}"))
		}
		h.logger.Warn("the placeholder is none of Caddy's own, so it has a value only if another module sets it", fields...)
	}
}

// blankTenant names the bucket of all requests for which a zone's key is blank,
// in keys and in rules. No tenant's escaped name has a tilde in it.
const blankTenant = "~blank"

// visitor returns whom a zone with a key of its own limits. An error means that
// the request is ambiguous.
func (z *zone) visitor(r *http.Request, repl *caddy.Replacer) (visitor, error) {
	key, err := z.key.of(r, repl)
	if err != nil {
		return visitor{}, err
	}
	if key == "" {
		return visitor{shown: blankTenant, key: blankTenant, rules: blankTenant}, nil
	}
	return tenantVisitor(maskKey(key, z.ipv4Prefix, z.ipv6Prefix)), nil
}

// maskKey returns the network of a key that is an IP address, with as many bits
// as its family's prefix says, written as CIDR. A key that is none, or whose
// family has no prefix (0), is returned as it is.
func maskKey(key string, ipv4, ipv6 int) string {
	if ipv4 == 0 && ipv6 == 0 {
		return key
	}
	network, ok := networkOf(key, ipv4, ipv6)
	if !ok || network.Bits() == 0 {
		return key
	}
	return network.String()
}
