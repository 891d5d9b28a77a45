package ratelimit

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/headers"
)

// TestRefusedErrorIsLikeCaddys: handle_errors and logs find in it what they find
// in an error that Caddy makes.
func TestRefusedErrorIsLikeCaddys(t *testing.T) {
	ours, caddys := error(refusedError(http.StatusTooManyRequests)), error(caddyhttp.Error(http.StatusTooManyRequests, errExceeded))
	require.ErrorIs(t, ours, errExceeded)
	var our, caddy caddyhttp.HandlerError
	require.ErrorAs(t, ours, &our)
	require.ErrorAs(t, caddys, &caddy)
	require.Equal(t, caddy.StatusCode, our.StatusCode)
	require.Len(t, our.ID, len(caddy.ID))
	require.NotEqual(t, our.ID, refusedError(http.StatusTooManyRequests).ID)
	require.Regexp(t, `^\S+ \([a-z_]+\.go(:\d+)?\)$`, our.Trace)
	require.Regexp(t, `^\S+ \([a-z_]+\.go(:\d+)?\)$`, caddy.Trace)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { ours = refusedError(http.StatusTooManyRequests) }), 2.0)
}

func TestErrorIDsAreWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "aaaaaaaaa", errorID(0))
	seen := make(map[string]bool)
	for range 1000 {
		id := errorID(rand.Uint64())
		require.Regexp(t, `^[a-km-np-z2-9]{9}$`, id)
		seen[id] = true
	}
	require.Len(t, seen, 1000)
}

func init() {
	caddy.RegisterModule(refuser{})
	httpcaddyfile.RegisterHandlerDirective("test_refuse", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return refuser{Policies: h.RemainingArgs()}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_refuse", httpcaddyfile.Before, "respond")
}

// refuser is a handler that refuses every request, so that a problem document
// can be seen to pass through a real server.
type refuser struct {
	Policies []string `json:"policies,omitempty"`
}

func (refuser) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_refuse", New: func() caddy.Module { return new(refuser) }}
}

func (h refuser) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	w.Header().Set("Retry-After", "7")
	if refuseWithProblem(w, r, problem{http.StatusTooManyRequests, h.Policies, reasonRate}) {
		return nil
	}
	return caddyhttp.Error(http.StatusTooManyRequests, errExceeded)
}

// server returns the one server of a Caddyfile, not started.
func server(t *testing.T, sites string) *caddyhttp.Server {
	t.Helper()
	text, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nadmin off\nauto_https off\n}\n"+sites), nil)
	require.NoError(t, err)
	config := new(caddy.Config)
	require.NoError(t, json.Unmarshal(text, config))
	ctx, err := provisionContext(config)
	require.NoError(t, err)
	app, err := ctx.App("http")
	require.NoError(t, err)
	servers := app.(*caddyhttp.App).Servers
	require.Len(t, servers, 1)
	return servers["srv0"]
}

// TestProblemWhereNoRouteRenders sees which refusals get the document: those
// that no error route answers, as Caddy itself finds out.
func TestProblemWhereNoRouteRenders(t *testing.T) {
	document := string(headers.Problem(http.StatusTooManyRequests, []string{"a"}, reasonRate))
	tests := map[string]struct{ sites, url, body string }{
		"no error route":             {"http://a {\ntest_refuse a\n}", "http://a/", document},
		"a page":                     {"http://a {\ntest_refuse a\nhandle_errors {\nrespond page\n}\n}", "http://a/", "page"},
		"a page for the status":      {"http://a {\ntest_refuse a\nhandle_errors 429 {\nrespond page\n}\n}", "http://a/", "page"},
		"a page for all of its kind": {"http://a {\ntest_refuse a\nhandle_errors 4xx {\nrespond page\n}\n}", "http://a/", "page"},
		"a page for another status":  {"http://a {\ntest_refuse a\nhandle_errors 404 5xx {\nrespond page\n}\n}", "http://a/", document},
		"another site's page":        {"http://a {\ntest_refuse a\n}\nhttp://b {\ntest_refuse b\nhandle_errors {\nrespond page\n}\n}", "http://a/", document},
		"the other site itself":      {"http://a {\ntest_refuse a\n}\nhttp://b {\ntest_refuse b\nhandle_errors {\nrespond page\n}\n}", "http://b/", "page"},
		"a page for other paths":     {"http://a {\ntest_refuse a\nhandle_errors {\nrespond /x page\n}\n}", "http://a/", document},
		"a page for this path":       {"http://a {\ntest_refuse a\nhandle_errors {\nrespond /x page\n}\n}", "http://a/x", "page"},
		"the path that was asked":    {"http://a {\nuri strip_prefix /x\ntest_refuse a\nhandle_errors {\nrespond /x/* page\n}\n}", "http://a/x/y", "page"},
		"a page that is rewritten":   {"http://a {\ntest_refuse a\nhandle_errors {\nrewrite /{err.status_code}\nrespond page\n}\n}", "http://a/", "page"},
		"a page by a condition":      {"http://a {\ntest_refuse a\nhandle_errors {\n@big expression `{err.status_code} == 429`\nrespond @big page\n}\n}", "http://a/", "page"},
		"a condition that fails":     {"http://a {\ntest_refuse a\nhandle_errors {\n@big expression `{err.status_code} >= 500`\nrespond @big page\n}\n}", "http://a/", document},
		"only a header":              {"http://a {\ntest_refuse a\nhandle_errors {\nheader X-Seen yes\n}\n}", "http://a/", ""},
		"no policy":                  {"http://a {\ntest_refuse\n}", "http://a/", ""},
		"refused by an error route":  {"http://a {\nerror 404\nhandle_errors {\ntest_refuse a\n}\n}", "http://a/", document},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, test.url, http.NoBody)
			r.Header.Set("Accept", "text/html, application/problem+json")
			w := httptest.NewRecorder()
			server(t, test.sites).ServeHTTP(w, r)
			require.Equal(t, test.body, w.Body.String())
			if test.body == document {
				require.Equal(t, http.StatusTooManyRequests, w.Code)
				require.Equal(t, headers.ProblemMedia, w.Header().Get("Content-Type"))
			} else {
				require.NotEqual(t, headers.ProblemMedia, w.Header().Get("Content-Type"))
			}
			require.Equal(t, "7", w.Header().Get("Retry-After"))
		})
	}
}

// TestProblemDocument reads the document as RFC 9457 says.
func TestProblemDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ names, want []string }{
		"one":            {[]string{"create-order"}, []string{"create-order"}},
		"two":            {[]string{"a", "b"}, []string{"a", "b"}},
		"one twice":      {[]string{"a", "a", "b", "a"}, []string{"a", "b"}},
		"of any text":    {[]string{`"\`, "é\n<&>"}, []string{`"\`, "%C3%A9%0A<&>"}},
		"an empty name":  {[]string{""}, []string{""}},
		"a broken UTF-8": {[]string{"\xff"}, []string{"%FF"}},
	} {
		w := httptest.NewRecorder()
		writeProblem(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody), problem{http.StatusTooManyRequests, test.names, reasonRate})
		var document map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document), name)
		violated := make([]any, len(test.want))
		for i, policy := range test.want {
			violated[i] = policy
		}
		require.Equal(t, map[string]any{
			"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":             "Request cannot be satisfied as assigned quota has been exceeded",
			"status":            429.0,
			"violated-policies": violated,
			"reason":            "rate",
		}, document, name)
		require.Equal(t, 429, w.Code, name)
		require.Equal(t, w.Body.Len(), int(w.Result().ContentLength), name)
	}
}

// TestProblemOutsideAServer leaves alone what it cannot ask.
func TestProblemOutsideAServer(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Accept", headers.ProblemMedia)
	w := httptest.NewRecorder()
	require.False(t, refuseWithProblem(w, r, problem{http.StatusTooManyRequests, []string{"a"}, reasonRate}))
	require.Empty(t, w.Header())
}

// Interface guards
var _ caddyhttp.MiddlewareHandler = refuser{}
