package ratelimit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

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
		return fmt.Errorf("%q has a brace without its counterpart", clipped(template))
	}
	for _, other := range []string{"{remote.host}", "{remote.ip}"} {
		if strings.Contains(template, other) {
			return fmt.Errorf("no placeholder is called %s; did you mean {http.request.remote.host}, in a Caddyfile {remote_host}?", other)
		}
	}
	if short := shorthand.FindString(template); short != "" {
		return fmt.Errorf("%s is a shorthand of the Caddyfile: in JSON, write it out, such as {http.request.header.X-Api-Key}", clipped(short))
	}
	for _, match := range anyPlaceholder.FindAllStringSubmatch(template, -1) {
		if meant := meantPlaceholder(match[1]); meant != "" && strings.Contains(match[1], ".") {
			return fmt.Errorf("no placeholder is called {%s}; did you mean {%s}?", clipped(match[1]), clipped(meant))
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
		clipped(pair), clipped(strings.Replace(pair, "}{", "}|{", 1)))
}

// warnOfPlaceholders tells of placeholders that are none of Caddy's own.
func (h *Handler) warnOfPlaceholders(option, template string) {
	for _, match := range anyPlaceholder.FindAllStringSubmatch(template, -1) {
		namespace, _, _ := strings.Cut(match[1], ".")
		if slices.Contains([]string{"http", "env", "file", "system", "time"}, namespace) {
			continue
		}
		fields := []zap.Field{zap.String("option", option), zap.String("placeholder", clipped(match[0]))}
		if meant := meantPlaceholder(match[1]); meant != "" {
			fields = append(fields, zap.String("did_you_mean", "{"+meant+"}"))
		}
		h.logger.Warn("the placeholder is none of Caddy's own, so it has a value only if another module sets it", fields...)
	}
}
