package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// AdminClient makes a connection for each request, because each reload replaces
// the admin server.
var AdminClient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Load posts the Caddyfile to the admin API, forced, and returns the status.
func (g *Process) Load(caddyfile string) (int, string) {
	g.t.Helper()
	return g.Post("/load", "text/caddyfile", g.Fill(caddyfile))
}

func (g *Process) Post(path, contentType, body string) (int, string) {
	g.t.Helper()
	if path == "/load" {
		g.reloaded.Store(true)
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+g.Admin+path, strings.NewReader(body))
	require.NoError(g.t, err)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Cache-Control", "must-revalidate")
	var res *http.Response
	for range 100 { // a reload replaces the admin API
		if res, err = AdminClient.Do(req); err == nil {
			break
		}
		req.Body = io.NopCloser(strings.NewReader(body))
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(g.t, err)
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusOK && strings.Contains(string(text), `{"error":`) {
		// Caddy before 2.11 answers 200 where it has warnings to tell first.
		return http.StatusBadRequest, string(text)
	}
	return res.StatusCode, string(text)
}

// Reload is load of a config that must be taken.
func (g *Process) Reload(caddyfile string) {
	g.t.Helper()
	status, text := g.Load(caddyfile)
	require.Equal(g.t, http.StatusOK, status, text)
}

// Refuses asks the gateway to load the Caddyfile, which it must not, and returns
// the error.
func (g *Process) Refuses(caddyfile string) string {
	g.t.Helper()
	status, text := g.Load(caddyfile)
	require.Equal(g.t, http.StatusBadRequest, status, caddyfile)
	return text
}

// Warns loads the Caddyfile, which must be taken, and returns what was logged
// since, in lines that are no information.
func (g *Process) Warns(caddyfile string) string {
	g.t.Helper()
	before := len(g.Log())
	g.Reload(caddyfile)
	var warnings []string
	for line := range strings.SplitSeq(g.Log()[before:], "\n") {
		if strings.Contains(line, `"level":"warn"`) && strings.Contains(line, "rate_limit") {
			warnings = append(warnings, line)
		}
	}
	return strings.Join(warnings, "\n")
}

// AdminGet reads from the admin API.
func (g *Process) AdminGet(path string) string {
	g.t.Helper()
	var res *http.Response
	Eventually(g.t, time.Minute, "the admin API answers, which a reload replaces", func() (ok bool) {
		var err error
		res, err = AdminClient.Get("http://" + g.Admin + path)
		return err == nil
	})
	defer res.Body.Close()
	var text bytes.Buffer
	_, err := text.ReadFrom(res.Body)
	require.NoError(g.t, err)
	return text.String()
}

// admin makes a call of the admin API.
func (g *Process) AdminCall(method, path string) (status int, header http.Header, body string) {
	g.t.Helper()
	req, err := http.NewRequest(method, "http://"+g.Admin+path, http.NoBody)
	require.NoError(g.t, err)
	var res *http.Response
	Eventually(g.t, time.Minute, "the admin API answers, which a reload replaces", func() bool {
		res, err = AdminClient.Do(req)
		return err == nil
	})
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(g.t, err)
	return res.StatusCode, res.Header, string(text)
}

// Asked returns the answer to a call that must succeed.
func (g *Process) Asked(method, path string) (answer map[string]any) {
	g.t.Helper()
	var status int
	var header http.Header
	var body string
	Eventually(g.t, time.Minute, "the config runs, which serves a moment before", func() bool {
		status, header, body = g.AdminCall(method, path)
		return status != http.StatusNotFound
	})
	require.Equal(g.t, http.StatusOK, status, body)
	require.Equal(g.t, "application/json", header.Get("Content-Type"))
	require.NoError(g.t, json.Unmarshal([]byte(body), &answer), body)
	return answer
}

// Deciding is what the status tells of by whom is decided.
func (g *Process) Deciding() string {
	g.t.Helper()
	var status struct {
		Deciding string `json:"deciding"`
	}
	require.NoError(g.t, json.Unmarshal([]byte(g.AdminGet("/rate_limit/status")), &status))
	return status.Deciding
}

// Rules returns what the gateway's status tells of its rules.
func (g *Process) Rules() map[string]any {
	g.t.Helper()
	status := g.Asked(http.MethodGet, "/rate_limit/status")
	require.Contains(g.t, status, "rules")
	rules, _ := status["rules"].(map[string]any)
	return rules
}
