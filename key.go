package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// keySource reads a name from a request.
type keySource struct {
	template string

	// header is set where the template is one header and nothing else, so that
	// the common case needs no replacer.
	header string

	// once are the headers that a request may send one time at most: which of
	// two values counts must not depend on who reads them.
	once []string

	// joints are the bytes of the text between several placeholders. They are
	// escaped in values, so that no two lists of values make one name.
	joints string
}

var (
	headerPlaceholder = regexp.MustCompile(`\{http\.request\.header\.([^{}]+)\}`)
	anyPlaceholder    = regexp.MustCompile(`\{([^{}]*)\}`)
	shorthand         = regexp.MustCompile(`\{(header|cookie|query|vars|path|uri|host|hostport|method|client_ip|remote|remote_host)(\.[^{}]*)?\}`)
)

var errRepeated = errors.New("the header that names the tenant was sent more than once")

// check returns why the template cannot be what was meant.
func (s *keySource) check() error {
	if rest := anyPlaceholder.ReplaceAllString(s.template, ""); strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("%q has a brace without its counterpart", s.template)
	}
	if short := shorthand.FindString(s.template); short != "" {
		return fmt.Errorf("%s is a shorthand of the Caddyfile: in JSON, write it out, such as {http.request.header.X-Api-Key}", short)
	}
	return nil
}

// newKeySource reads a template.
func newKeySource(template string) keySource {
	source := keySource{template: template}
	if placeholders := anyPlaceholder.FindAllString(template, -1); len(placeholders) > 1 {
		source.joints = anyPlaceholder.ReplaceAllString(template, "") + "%"
	}
	for _, match := range headerPlaceholder.FindAllStringSubmatch(template, -1) {
		name := http.CanonicalHeaderKey(match[1])
		source.once = append(source.once, name)
		if match[0] == template {
			source.header = name
		}
	}
	return source
}

// of returns the name, blank if the request has none. An error means that the
// request is ambiguous.
func (s *keySource) of(r *http.Request, repl *caddy.Replacer) (string, error) {
	for _, name := range s.once {
		if len(r.Header[name]) > 1 {
			return "", errRepeated
		}
	}
	if s.header == "" {
		return s.replace(repl), nil
	}
	if values := r.Header[s.header]; len(values) == 1 {
		return strings.TrimSpace(values[0]), nil
	}
	return "", nil
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
