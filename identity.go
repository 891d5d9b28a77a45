package ratelimit

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

const defaultTenant = "{http.request.header.X-Api-Key}"

// tenantSource reads the tenant from a request.
type tenantSource struct {
	template string

	// header is set where the template is one header and nothing else, so that
	// the common case needs no replacer.
	header string

	// once are the headers that a request may send one time at most: which of
	// two values counts must not depend on who reads them.
	once []string
}

var headerPlaceholder = regexp.MustCompile(`\{http\.request\.header\.([^{}]+)\}`)

var errRepeated = errors.New("the header that names the tenant was sent more than once")

// newTenantSource reads the tenant's template; an empty one is the default.
func newTenantSource(template string, logger *zap.Logger) (tenantSource, error) {
	if template == "" {
		template = defaultTenant
	}
	if strings.TrimSpace(template) == "" {
		return tenantSource{}, errors.New("a blank text names no tenant: name a placeholder such as {header.X-Api-Key}")
	}
	source := tenantSource{template: template}
	for _, match := range headerPlaceholder.FindAllStringSubmatch(template, -1) {
		name := http.CanonicalHeaderKey(match[1])
		source.once = append(source.once, name)
		if match[0] == template {
			source.header = name
		}
		if strings.ContainsAny(name, "_.") {
			logger.Warn("caddy drops headers with an underscore or a dot in their name unless the server expects them, so this tenant may always be missing",
				zap.String("header", name))
		}
	}
	if !strings.Contains(template, "{") {
		logger.Warn("the tenant has no placeholder, so all clients share one bucket", zap.String("tenant", template))
	}
	return source, nil
}

// of returns the request's tenant, blank if it names none. An error means that
// the request is ambiguous.
func (s *tenantSource) of(r *http.Request, repl *caddy.Replacer) (string, error) {
	for _, name := range s.once {
		if len(r.Header[name]) > 1 {
			return "", errRepeated
		}
	}
	if s.header == "" {
		return strings.TrimSpace(repl.ReplaceAll(s.template, "")), nil
	}
	if values := r.Header[s.header]; len(values) == 1 {
		return strings.TrimSpace(values[0]), nil
	}
	return "", nil
}
