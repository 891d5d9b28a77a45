package page

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ssh" {
		standInForSSH(os.Args[1:])
		return
	}
	goleak.VerifyTestMain(m)
}

// open serves a page for the addresses, until the test ends.
func open(t *testing.T, addresses ...string) *Page {
	t.Helper()
	p, err := Open(t.Context(), Options{Addresses: addresses})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return p
}

// admin is an admin API that answers with a handler; it returns its address.
func admin(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(map[string]string{
		"method": r.Method, "uri": r.RequestURI, "host": r.Host, "body": string(body),
		"type": r.Header.Get("Content-Type"), "origin": r.Header.Get("Origin"), "mode": r.Header.Get("Sec-Fetch-Mode"),
	})
}

// response is what a call was answered.
type response struct {
	status int
	header http.Header
	body   string
}

// call sends a request to the page; header names and values stand behind each other.
func call(t *testing.T, method, target, body string, header ...string) response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
		}
		request.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	got, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	return response{got.StatusCode, got.Header, string(text)}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	p := open(t, admin(t, echo))
	own := strings.TrimSuffix(p.URL(), "/"+p.token+"/")
	host := strings.TrimPrefix(own, "http://")
	const status = "at/0/rate_limit/status"
	tests := map[string]struct {
		method, url string
		header      []string
		want        int
		say         string
	}{
		"the document":                {"GET", p.URL(), nil, 200, "<!doctype html>"},
		"the script":                  {"GET", p.URL() + "page.js", []string{"Sec-Fetch-Site", "same-origin"}, 200, "use strict"},
		"the gateways":                {"GET", p.URL() + "gateways", nil, 200, `{"gateways":["127.0.0.1:`},
		"a call":                      {"GET", p.URL() + status, []string{"Sec-Fetch-Site", "same-origin"}, 200, `"uri":"/rate_limit/status"`},
		"by the name of this machine": {"GET", p.URL() + status, []string{"Host", "localhost:1234"}, 200, `"method":"GET"`},
		"a change":                    {"DELETE", p.URL() + "at/0/rate_limit/bucket", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, 200, `"method":"DELETE"`},
		"a change through a tunnel":   {"DELETE", p.URL() + "at/0/rate_limit/bucket", []string{"Host", "localhost:1234", "Origin", "http://localhost:1234"}, 200, `"method":"DELETE"`},
		"a link to the document":      {"GET", p.URL(), []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document"}, 200, "<!doctype html>"},

		"no token":                  {"GET", own + "/", nil, 403, "not the address of the page that runs"},
		"no slash behind the token": {"GET", strings.TrimSuffix(p.URL(), "/"), nil, 403, "not the address"},
		"another token":             {"GET", own + "/" + strings.Repeat("A", len(p.token)) + "/" + status, nil, 403, "not the address"},
		"a part of the token":       {"GET", own + "/" + p.token[1:] + "/" + status, nil, 403, "not the address"},
		"the token in another case": {"GET", own + "/" + strings.ToLower(p.token) + "/" + status, nil, 403, "not the address"},
		"another host":              {"GET", p.URL() + status, []string{"Host", "evil.example:80"}, 403, "127.0.0.1 and localhost alone"},
		"a host like ours":          {"GET", p.URL() + status, []string{"Host", "127.0.0.1.evil.example"}, 403, "alone"},
		"an address that is not":    {"GET", p.URL() + status, []string{"Host", "0.0.0.0:80"}, 403, "alone"},
		"another origin":            {"GET", p.URL() + status, []string{"Origin", "http://evil.example"}, 403, "another page"},
		"the origin null":           {"DELETE", p.URL() + "at/0/rate_limit/bucket", []string{"Origin", "null"}, 403, "another page"},
		"another port's origin":     {"DELETE", p.URL() + "at/0/rate_limit/bucket", []string{"Origin", "http://127.0.0.1:1"}, 403, "another page"},
		"a secure origin":           {"DELETE", p.URL() + "at/0/rate_limit/bucket", []string{"Origin", "https://" + host}, 403, "another page"},
		"a change without origin":   {"DELETE", p.URL() + "at/0/rate_limit/bucket", nil, 403, "another page"},
		"a change by another site":  {"POST", p.URL() + "at/0/rate_limit/rules/refresh", []string{"Origin", own, "Sec-Fetch-Site", "cross-site"}, 403, "another page"},
		"read by another site":      {"GET", p.URL() + status, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document"}, 403, "another page"},
		"a script elsewhere":        {"GET", p.URL() + "page.js", []string{"Sec-Fetch-Site", "same-site"}, 403, "another page"},
		"the document in a frame":   {"GET", p.URL(), []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe"}, 403, "another page"},

		"a file that is not there":    {"GET", p.URL() + "x", nil, 404, "is not there"},
		"a method that is not":        {"PUT", p.URL(), []string{"Origin", own}, 405, "not allowed"},
		"a method of a call":          {"PUT", p.URL() + "at/0/rate_limit/status", []string{"Origin", own}, 405, "not allowed"},
		"a gateway that is not there": {"GET", p.URL() + "at/1/rate_limit/status", nil, 404, "no gateway 1"},
		"a gateway before the first":  {"GET", p.URL() + "at/-1/rate_limit/status", nil, 404, "no gateway -1"},
		"the configuration":           {"POST", p.URL() + "at/0/load", []string{"Origin", own}, 403, "is not passed on"},
		"out of the folder":           {"GET", p.URL() + "at/0/rate_limit/../config/", nil, 403, "is not passed on"},
		"out of it with an escape":    {"GET", p.URL() + "at/0/rate_limit/%2e%2e/config/", nil, 403, "is not passed on"},
		"out of it with a backslash":  {"GET", p.URL() + `at/0/rate_limit/..\config`, nil, 403, "is not passed on"},
		"the folder alone":            {"GET", p.URL() + "at/0/rate_limit/", nil, 403, "is not passed on"},
		"two slashes":                 {"GET", p.URL() + "at/0//rate_limit/status", nil, 403, "is not passed on"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, test.method, test.url, "", test.header...)
			require.Equal(t, test.want, got.status, got.body)
			require.Contains(t, got.body, test.say)
			require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'")
			require.Equal(t, "no-store", got.header.Get("Cache-Control"))
			require.Empty(t, got.header.Get("Access-Control-Allow-Origin"))
		})
	}
}

func TestPassedOn(t *testing.T) {
	t.Parallel()
	at := admin(t, echo)
	p := open(t, at)
	own := strings.TrimSuffix(p.URL(), "/"+p.token+"/")
	got := call(t, "POST", p.URL()+"at/0/rate_limit/explain?cost=2", "tenant=shop-a&route=api", "Origin", own, "Sec-Fetch-Mode", "cors",
		"Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, 200, got.status)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.JSONEq(t, `{"method":"POST","uri":"/rate_limit/explain?cost=2","host":"`+at+`","body":"tenant=shop-a&route=api",
		"type":"application/x-www-form-urlencoded","origin":"","mode":""}`, got.body, "Caddy sees no browser, and its own name")
}

func TestAnswersOfGateways(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, silent.Close())
	tests := map[string]struct {
		at   string
		want int
		say  string
	}{
		"403": {admin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"error":"host not allowed"}`)
		}), 403, `{"error":"host not allowed"}`},
		"500": {admin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"error":"x"}`)
		}), 500, `{"error":"x"}`},
		"half": {admin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"version":`)
		}), 502, "broke off after 11 bytes"},
		"no JSON": {admin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<script>alert(1)</script>`)
		}), 502, "it answered 200 and no JSON"},
		"nothing": {admin(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}), 502, "closed the connection without an answer"},
		"never":   {admin(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), 502, "did not answer in time"},
		"nobody":  {silent.Addr().String(), 502, "nobody listens there"},
		"endless": {admin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, longestAnswer+1)) }), 502, "is longer than"},
		"elsewhere": {admin(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}), 502, "it answered 302"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call(t, "GET", open(t, test.at).URL()+"at/0/rate_limit/status", "")
			require.Equal(t, test.want, got.status)
			require.Contains(t, got.body, test.say)
			require.Equal(t, "application/json", got.header.Get("Content-Type"))
			require.NotContains(t, got.body, test.at, "the page knows it")
		})
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(echo), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	got := call(t, "GET", open(t, "unix/"+socket+"|0222").URL()+"at/0/rate_limit/status", "")
	require.Equal(t, 200, got.status, got.body)
	require.Contains(t, got.body, `"host":"127.0.0.1"`)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ host, err string }{
		"localhost:2019":              {"localhost:2019", ""},
		":2019":                       {"localhost:2019", ""},
		"tcp/10.0.0.1:2019":           {"10.0.0.1:2019", ""},
		"[::1]:2019":                  {"[::1]:2019", ""},
		"unix//run/caddy.sock":        {"127.0.0.1", ""},
		"ssh://gateway-1":             {"localhost:2019", ""},
		"ssh://me@gateway-1:22/:2020": {"localhost:2020", ""},
		"":                            {"", "it is no host with a port: allowed are"},
		"gateway":                     {"", "it is no host with a port: allowed are"},
		"gateway:http":                {"", `port "http" is none`},
		"gateway:70000":               {"", `port "70000" is none`},
		"http://gateway:2019":         {"", "allowed are"},
		"user@gateway:2019":           {"", `host "user@gateway" is none`},
		"unix/":                       {"", "names no socket"},
		"udp/gateway:2019":            {"", "allowed are"},
		"ssh://":                      {"", "names no host"},
		"ssh://-oProxyCommand=x":      {"", "names no host"},
		"ssh://gateway/x":             {"", "the address there: it is no host with a port"},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			address, err := ParseAddress(text)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.host, address.host)
		})
	}
	_, err := ParseAddress("ssh://me:secret@gateway")
	require.ErrorContains(t, err, "has a password")
	require.NotContains(t, err.Error(), "secret")
}

func TestOptionsOfThePage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		addresses []string
		want      string
	}{
		"none":     {nil, "0 addresses of gateways: allowed are 1 to 100"},
		"too many": {make([]string, MaxGateways+1), "101 addresses of gateways: allowed are 1 to 100"},
		"twice":    {[]string{"localhost:2019", "localhost:2019"}, "is there twice"},
		"wrong":    {[]string{"gateway"}, "it is no host with a port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Open(t.Context(), Options{Addresses: test.addresses})
			require.ErrorContains(t, err, test.want)
		})
	}
}

// standInForSSH does what ssh -W does, without another machine.
func standInForSSH(arguments []string) {
	_ = os.WriteFile(filepath.Join(os.Getenv("PATH"), "arguments"), []byte(strings.Join(arguments, " ")), 0o600)
	if arguments[len(arguments)-1] == "lost" {
		_, _ = io.WriteString(os.Stderr, "ssh: Could not resolve hostname lost\n")
		os.Exit(255)
	}
	conn, err := net.Dial("tcp", arguments[5])
	if err != nil {
		os.Exit(255)
	}
	go func() {
		_, _ = io.Copy(conn, os.Stdin)
		_ = conn.Close()
	}()
	_, _ = io.Copy(os.Stdout, conn)
}

func TestSSH(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.Symlink(program, filepath.Join(folder, "ssh")))
	t.Setenv("PATH", folder)
	at := admin(t, echo)

	got := call(t, "GET", open(t, "ssh://me@gateway-1:2222/"+at).URL()+"at/0/rate_limit/status", "")
	require.Equal(t, 200, got.status, got.body)
	require.Contains(t, got.body, `"host":"`+at+`"`)
	arguments, err := os.ReadFile(filepath.Join(folder, "arguments"))
	require.NoError(t, err)
	require.Equal(t, "-o BatchMode=yes -o ConnectTimeout=5 -W "+at+" -p 2222 -l me -- gateway-1", string(arguments))

	got = call(t, "GET", open(t, "ssh://lost").URL()+"at/0/rate_limit/status", "")
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, "ssh: Could not resolve hostname lost")

	t.Setenv("PATH", t.TempDir())
	got = call(t, "GET", open(t, "ssh://gateway-1").URL()+"at/0/rate_limit/status", "")
	require.Equal(t, 502, got.status)
	require.Contains(t, got.body, "ssh could not be started")
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	p := open(t, admin(t, echo))
	got := call(t, "GET", p.URL()+"page.js", "", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", got.header.Get("Content-Encoding"))
	reader, err := gzip.NewReader(strings.NewReader(got.body))
	require.NoError(t, err)
	text, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, p.assets["page.js"].body, text)
}

// TestAssets holds what the page is made of: at most 100 KB, all of it our own, and
// no way for data to become markup.
func TestAssets(t *testing.T) {
	t.Parallel()
	assets, err := readAssets()
	require.NoError(t, err)
	size := 0
	foreign := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`)
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|javascript:|srcdoc|style="| on[a-z]+="`)
	for name, file := range assets {
		size += len(file.body)
		require.NotEmpty(t, file.kind, name)
		text := strings.ReplaceAll(string(file.body), "http://www.w3.org/2000/svg", "") // the name of SVG, which nobody asks for
		require.Empty(t, foreign.FindAllString(text, -1), name)
		require.Empty(t, markup.FindAllString(text, -1), name)
	}
	require.LessOrEqual(t, size, 100<<10)
	t.Logf("%d bytes", size)
}
