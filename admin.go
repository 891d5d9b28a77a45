package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI serves what operators ask about the limits of this gateway, and the
// few things that they may change without a deploy. It holds nothing: Caddy makes
// it before the apps, and may keep it after a config that failed, so each request
// asks which app runs now.
type adminAPI struct{}

// CaddyModule returns the module's ID and how to make one.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.rate_limit", New: func() caddy.Module { return new(adminAPI) }}
}

// adminCall is one of the calls.
type adminCall struct {
	method string
	path   string
	within time.Duration
	handle func(ctx context.Context, app *App, q *adminQuery) (any, error)
	allow  []string // parameters of the query
}

// adminTimeout bounds most calls: all that they wait for is Redis.
const adminTimeout = 5 * time.Second

// The paths of the calls.
const (
	adminRoot   = "/rate_limit/"
	statusPath  = adminRoot + "status"
	rulesPath   = adminRoot + "rules"
	refreshPath = adminRoot + "rules/refresh"
	explainPath = adminRoot + "explain"
	bucketPath  = adminRoot + "bucket"
	topPath     = adminRoot + "top"
)

// adminCalls lists the calls.
func adminCalls() []adminCall {
	return []adminCall{
		{http.MethodGet, statusPath, adminTimeout, answerStatus, nil},
		{http.MethodGet, rulesPath, adminTimeout, answerRules, []string{"tenant", "route", "limit", "cursor"}},
		{http.MethodGet, explainPath, adminTimeout, answerExplain, []string{"tenant", "stored", "key", "ip", "route", "cost"}},
		{http.MethodDelete, bucketPath, adminTimeout, answerReset, []string{"tenant", "stored", "key", "ip", "route"}},
		{http.MethodPost, refreshPath, refreshTimeout, answerRefresh, nil},
		{http.MethodGet, topPath, adminTimeout, answerTop, []string{"limit"}},
	}
}

// Routes returns the calls, and an answer to all other paths below theirs.
func (adminAPI) Routes() []caddy.AdminRoute {
	calls := adminCalls()
	routes := make([]caddy.AdminRoute, 0, len(calls)+1)
	routes = append(routes, caddy.AdminRoute{Pattern: adminRoot, Handler: caddy.AdminHandlerFunc(unknownPath)})
	for _, call := range calls {
		routes = append(routes, caddy.AdminRoute{Pattern: call.path, Handler: caddy.AdminHandlerFunc(call.serve)})
	}
	return routes
}

// unknownPath names the paths that are there.
func unknownPath(_ http.ResponseWriter, r *http.Request) error {
	paths := make([]string, 0, len(adminCalls()))
	for _, call := range adminCalls() {
		paths = append(paths, call.method+" "+call.path)
	}
	return apiError(http.StatusNotFound, "%.100q is not there: there are %s", r.URL.Path, strings.Join(paths, ", "))
}

// serve answers a request.
func (c *adminCall) serve(w http.ResponseWriter, r *http.Request) error {
	if methods := c.methods(); !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return apiError(http.StatusMethodNotAllowed, "%s does not take %.20q: allowed is %s", c.path, r.Method, strings.Join(methods, ", "))
	}
	raw, err := c.parameters(w, r)
	if err != nil {
		return apiError(http.StatusBadRequest, "%w", err)
	}
	query, err := newAdminQuery(raw, c.allow)
	if err != nil {
		return apiError(http.StatusBadRequest, "%w", err)
	}
	app, err := runningApp()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.within)
	defer cancel()
	answer, err := c.handle(ctx, app, query)
	if err != nil {
		return err
	}
	return writeAnswer(w, answer)
}

// methods are those that the call takes.
func (c *adminCall) methods() []string {
	switch {
	case c.method != http.MethodGet:
		return []string{c.method}
	case c.namesTenant():
		return []string{http.MethodGet, http.MethodHead, http.MethodPost}
	}
	return []string{http.MethodGet, http.MethodHead}
}

// namesTenant reports whether a parameter may be a secret. Caddy logs the URI of
// every admin call, so that such parameters may stand in the body, too.
func (c *adminCall) namesTenant() bool { return slices.Contains(c.allow, "tenant") }

// mostParameters is how many bytes of parameters a body may have.
const mostParameters = 64 << 10

// parameters returns those of the URI and of a form in the body.
func (c *adminCall) parameters(w http.ResponseWriter, r *http.Request) (string, error) {
	const form = "application/x-www-form-urlencoded"
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); !c.namesTenant() || media != form {
		return r.URL.RawQuery, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostParameters))
	if err != nil {
		return "", fmt.Errorf("reading the parameters in the body, of which %d bytes are allowed: %w", mostParameters, err)
	}
	return strings.Trim(r.URL.RawQuery+"&"+string(body), "&"), nil
}

// partial is an answer that tells of a failure, too.
type partial interface{ status() int }

func writeAnswer(w http.ResponseWriter, answer any) error {
	body, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if p, ok := answer.(partial); ok {
		w.WriteHeader(p.status())
	}
	_, _ = w.Write(append(body, '\n')) // who is gone needs no answer
	return nil
}

// runningApp returns the app of the config that runs now.
func runningApp() (*App, error) {
	loaded, err := caddy.ActiveContext().AppIfConfigured(appName)
	switch {
	case errors.Is(err, caddy.ErrNotConfigured):
		return nil, apiError(http.StatusNotFound, "the running configuration has no rate_limit, neither as a directive nor as a global option")
	case err != nil:
		return nil, apiError(http.StatusServiceUnavailable, "the app rate_limit is not running")
	}
	return loaded.(*App), nil
}

// apiError is an error with a status, whose text is all that the caller gets.
func apiError(status int, format string, arguments ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, arguments...)}
}

// Interface guards
var (
	_ caddy.Module      = adminAPI{}
	_ caddy.AdminRouter = adminAPI{}
)
