package page

import (
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
)

// The reasons why a request is refused. They are for people: an operator who opens
// an old address sees them.
var (
	errHost   = errors.New("this page is for 127.0.0.1 and localhost alone: another name may be a trick to reach it from elsewhere")
	errToken  = errors.New("this is not the address of the page that runs: open the one that the terminal shows, or start caddy rate-limit page again")
	errOrigin = errors.New("another page sent this request: only the page itself may")
)

// admit returns the path below the token of a request by the page itself, or why
// the request is refused. Whatever comes from elsewhere is: a name that leads here
// (DNS rebinding), another page in the same browser, and who does not know the token.
func (p *Page) admit(r *http.Request) (string, error) {
	if !isLoopback(r.Host) {
		return "", errHost
	}
	token, path, below := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if !below || subtle.ConstantTimeCompare([]byte(token), []byte(p.token)) != 1 {
		return "", errToken
	}
	if !isOwn(r, path) {
		return "", errOrigin
	}
	return path, nil
}

// isLoopback reports whether a request was sent to a name of this machine alone. Any
// port will do: a tunnel may end at another one.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return name == "127.0.0.1" || name == "::1" || strings.EqualFold(name, "localhost")
}

// isOwn reports whether the page sent the request, as far as the browser tells.
// What changes something has to have an origin: every browser sends it then. The
// document itself may be opened from a link, such as one in a terminal that is a page.
func isOwn(r *http.Request, path string) bool {
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case origin != "" && origin != "http://"+r.Host:
		return false
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return site == "" || site == "same-origin" || site == "none" ||
			path == "" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	return origin != "" && (site == "" || site == "same-origin")
}

// protect sets what a browser may do with an answer: run the page's own script, call
// this server, and nothing else, whatever stands in an answer.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
