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

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/internal/cli"
)

func init() {
	caddy.RegisterModule(adminAPI{})
	caddycmd.RegisterCommand(cli.Command(block.Expand))
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

// adminCall is one of the calls, and what answers it.
type adminCall struct {
	adminapi.Call
	answer func(ctx context.Context, app *App, q *adminapi.Query) (any, error)
}

// adminCalls lists the calls.
func adminCalls() []adminCall {
	return []adminCall{
		{adminapi.StatusCall(), answerStatus},
		{adminapi.RulesCall(), answerRules},
		{adminapi.ExplainCall(), answerExplain},
		{adminapi.ResetCall(), answerReset},
		{adminapi.RefreshCall(), answerRefresh},
		{adminapi.TopCall(), answerTop},
		{adminapi.BansCall(), answerBans},
		{adminapi.HistoryCall(), answerHistory},
		{adminapi.EventsCall(), answerEvents},
	}
}

// Routes returns the calls, and an answer to all other paths below theirs.
func (adminAPI) Routes() []caddy.AdminRoute {
	calls := adminCalls()
	routes := make([]caddy.AdminRoute, 0, len(calls)+1)
	routes = append(routes, caddy.AdminRoute{Pattern: adminapi.Root, Handler: caddy.AdminHandlerFunc(unknownPath)})
	for _, call := range calls {
		routes = append(routes, caddy.AdminRoute{Pattern: call.Path, Handler: caddy.AdminHandlerFunc(call.serve)})
	}
	return routes
}

// unknownPath names the paths that are there.
func unknownPath(_ http.ResponseWriter, r *http.Request) error {
	paths := make([]string, 0, len(adminCalls()))
	for _, call := range adminCalls() {
		paths = append(paths, call.Method+" "+call.Path)
	}
	return apiError(http.StatusNotFound, "%.100q is not there: there are %s", r.URL.Path, strings.Join(paths, ", "))
}

// serve answers a request.
func (c *adminCall) serve(w http.ResponseWriter, r *http.Request) error {
	if methods := c.Methods(); !slices.Contains(methods, r.Method) {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		return apiError(http.StatusMethodNotAllowed, "%s does not take %.20q: allowed is %s", c.Path, r.Method, strings.Join(methods, ", "))
	}
	raw, err := c.parameters(w, r)
	if err != nil {
		return badQuery(err)
	}
	query, err := adminapi.ParseQuery(raw, c.Parameters)
	if err != nil {
		return badQuery(err)
	}
	app, err := runningApp()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.Within)
	defer cancel()
	answer, err := c.answer(ctx, app, query)
	if err != nil {
		return err
	}
	return writeAnswer(w, answer)
}

// parameters returns those of the URI and of a form in the body.
func (c *adminCall) parameters(w http.ResponseWriter, r *http.Request) (string, error) {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); !c.NamesTenant() || media != adminapi.Form {
		return r.URL.RawQuery, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, adminapi.MaxForm))
	if err != nil {
		return "", fmt.Errorf("reading the parameters in the body, of which %d bytes are allowed: %w", adminapi.MaxForm, err)
	}
	return strings.Trim(r.URL.RawQuery+"&"+string(body), "&"), nil
}

// partial is an answer that tells of a failure, too.
type partial interface{ Status() int }

func writeAnswer(w http.ResponseWriter, answer any) error {
	body, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if p, ok := answer.(partial); ok {
		w.WriteHeader(p.Status())
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

// badQuery is for what the caller has to change.
func badQuery(err error) error { return apiError(http.StatusBadRequest, "%w", err) }

// Interface guards
var (
	_ caddy.Module      = adminAPI{}
	_ caddy.AdminRouter = adminAPI{}
)
