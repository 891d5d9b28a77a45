package main

import (
	"encoding/csv"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlan(t *testing.T) {
	t.Parallel()
	shots := plan(10 * time.Second)
	require.Equal(t, shots, plan(10*time.Second), "the same traffic each time")
	require.LessOrEqual(t, len(plan(25*time.Second)), maxShots)
	sent := map[class]int{}
	keys := map[string]bool{}
	for i, s := range shots {
		require.True(t, s.at >= 0 && s.at < 10*time.Second && (i == 0 || s.at >= shots[i-1].at))
		sent[s.class]++
		if s.class == scrapers && s.key != "" {
			require.False(t, keys[s.key], "a key made up for one request")
			keys[s.key] = true
		}
	}
	require.InDelta(t, 288, sent[users], 20)
	require.InDelta(t, 3000, sent[scrapers], 10)
	require.InDelta(t, 1500, len(keys), 200)
}

func TestCheckLoopback(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkLoopback([]string{"http://127.0.0.1:8080"}))
	for _, address := range []string{"http://example.com:80", "http://10.0.0.1:80", "https://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1@example.com:80", ""} {
		require.Error(t, checkLoopback([]string{address}), address)
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		switch {
		case r.Header.Get("X-Forwarded-For") != "192.0.2.1":
			status = http.StatusBadRequest
		case r.Header.Get("X-Api-Key") == "":
			status = http.StatusTooManyRequests
		case r.URL.Path == "/full":
			status = http.StatusServiceUnavailable
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	results, err := send(t.Context(), []shot{
		{class: users, path: "/", key: "a", address: "192.0.2.1"},
		{class: users, path: "/full", key: "a", address: "192.0.2.1"},
		{class: guests, path: "/", address: "192.0.2.1"},
		{class: scrapers, path: "/", address: "192.0.2.2"},
	}, []string{server.URL})
	require.NoError(t, err)
	results.counts[users].took = nil
	require.Equal(t, [classes]counts{
		users: {sent: 2, served: 1, overloaded: 1}, guests: {sent: 1, limited: 1}, scrapers: {sent: 1, failed: 1},
	}, results.counts)

	_, err = send(t.Context(), []shot{{path: "/", address: "192.0.2.2"}}, []string{server.URL})
	require.ErrorContains(t, err, "do the gateways run?")
}

func TestReport(t *testing.T) {
	t.Parallel()
	before, after := new(tally), new(tally)
	for i := range 100 {
		before.note(users, answer{http.StatusServiceUnavailable, 0})
		after.note(users, answer{http.StatusOK, time.Duration(i+1) * time.Millisecond})
	}
	r := report{before: before, after: after}

	lines, err := csv.NewReader(strings.NewReader(r.csv())).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 1+2*classes)
	require.Equal(t, []string{"without", "users", "100", "0", "0", "100", "0", "0.0", "0"}, lines[1])
	require.Equal(t, []string{"with", "users", "100", "100", "0", "0", "0", "100.0", "95"}, lines[1+classes])

	decoder := xml.NewDecoder(strings.NewReader(r.svg()))
	for err = error(nil); err == nil; _, err = decoder.Token() {
	}
	require.ErrorIs(t, err, io.EOF, "the plot is XML")
}
