package ratelimit

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// refuseWithProblem answers a refused request with a problem document (RFC 9457)
// that names the violated policies, and reports whether it did. If it did, the
// handler returns nil: the answer is written, with status 429 and whatever the
// header of w holds. It does not where the client has not asked for such a
// document, where an error route (handle_errors) may have an answer of its own,
// and where no policy is named, because no bucket has refused.
//
// An error route that a subroute keeps for itself, which only JSON can write, is
// not seen.
func refuseWithProblem(w http.ResponseWriter, r *http.Request, names []string) bool {
	if len(names) == 0 || !wantsProblem(r.Header["Accept"]) || mayRender(r) {
		return false
	}
	writeProblem(w, r, names)
	return true
}

// writeProblem writes the document of problem type quota-exceeded, after
// draft-ietf-httpapi-ratelimit-headers-11, section 5.1. The policies have the
// names of policyField.
func writeProblem(w http.ResponseWriter, r *http.Request, names []string) {
	document := append(make([]byte, 0, 256), problemStart...)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		if i > 0 {
			document = append(document, ',')
		}
		document = appendName(document, name)
	}
	document = append(document, "]}\n"...)

	header := w.Header()
	header.Set("Content-Type", problemMedia)
	header.Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(http.StatusTooManyRequests)
	if r.Method != http.MethodHead {
		_, _ = w.Write(document) // whom it does not reach has left
	}
}

const (
	problemMedia = "application/problem+json"
	problemStart = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",` +
		`"status":429,"violated-policies":[`
)

// mayRender reports whether the server has an error route that may answer the
// refusal of the request, or cannot be asked. All sites on a port share one
// server, and most error routes are for other sites or other statuses.
func mayRender(r *http.Request) bool {
	ctx := r.Context()
	server, found := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !found {
		return true
	}
	if inErrorRoute(r) {
		return false // nobody handles an error of one that handles errors
	}
	if server.Errors == nil || len(server.Errors.Routes) == 0 {
		return false
	}
	refused := server.Errors.WithError(r, caddyhttp.HandlerError{StatusCode: http.StatusTooManyRequests, Err: errExceeded})
	if original, found := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); found {
		refused.Method, refused.RemoteAddr = original.Method, original.RemoteAddr
		refused.RequestURI, refused.URL = original.RequestURI, original.URL
	}
	return anyRenders(server.Errors.Routes, refused)
}

// anyRenders reports whether one of the routes matches the request with anything
// but subroutes of which none does. It looks the way that Caddy goes, and where
// it cannot tell it says yes.
func anyRenders(routes caddyhttp.RouteList, r *http.Request) bool {
	for i := range routes {
		matches, err := routes[i].MatcherSets.AnyMatchWithError(r)
		if err != nil {
			return true
		}
		if !matches {
			continue
		}
		for _, handler := range routes[i].Handlers {
			subroute, nested := handler.(*caddyhttp.Subroute)
			if !nested || anyRenders(subroute.Routes, r) {
				return true
			}
		}
		if routes[i].Terminal {
			return false
		}
	}
	return false
}

// wantsProblem reports whether the values of Accept name problem documents. A
// wildcard does not: it says that anything is as good, so the short answer is.
func wantsProblem(accept []string) bool {
	for _, value := range accept {
		for value != "" {
			var member string
			member, value = cutUnquoted(value, ',')
			if namesProblem(member) {
				return true
			}
		}
	}
	return false
}

// namesProblem reports whether one media range of Accept (RFC 9110, section
// 12.5.1) is that of problem documents, with a weight above 0.
func namesProblem(member string) bool {
	media, parameters := cutUnquoted(member, ';')
	if !strings.EqualFold(strings.TrimSpace(media), problemMedia) {
		return false
	}
	for parameters != "" {
		var parameter string
		parameter, parameters = cutUnquoted(parameters, ';')
		key, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(key), "q") {
			return weighs(strings.TrimSpace(value))
		}
	}
	return true
}

// weighs reports whether the text is a weight above 0: up to 1, with up to three
// decimals. What is none asks for nothing.
func weighs(text string) bool {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > 3 || strings.Trim(decimals, "0123456789") != "" {
		return false
	}
	zero := strings.Trim(decimals, "0") == ""
	return whole == "1" && zero || whole == "0" && !zero
}

// cutUnquoted cuts the text at the first separator outside quotes.
func cutUnquoted(text string, separator byte) (before, after string) {
	before, after, _ = strings.Cut(text, string(separator))
	if strings.IndexByte(before, '"') < 0 {
		return before, after
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}
