package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// board is a dashboard of two panels.
const board = `{"panels":[
	{"title":"Requests <all>","gridPos":{"x":0,"y":0,"w":12,"h":8},"fieldConfig":{"defaults":{"unit":"s"}},
	 "targets":[{"expr":"rate(x{zone=~\"$zone\"}[$__rate_interval])","legendFormat":"{{zone}} on {{ instance }}"}]},
	{"title":"Breaker","gridPos":{"x":12,"y":0,"w":12,"h":8},"fieldConfig":{"defaults":{"unit":"short","max":1}},
	 "targets":[{"expr":"y","legendFormat":"y"}]}]}`

func boardFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dashboard.json")
	require.NoError(t, os.WriteFile(file, []byte(board), 0o600))
	return file
}

func TestPicture(t *testing.T) {
	t.Parallel()
	var asked []string
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query().Get("query")
		asked = append(asked, query)
		if query == "y" {
			_, _ = io.WriteString(w, `{"status":"success","data":{"result":[]}}`)
			return
		}
		_, _ = io.WriteString(w, `{"status":"success","data":{"result":[{"metric":{"zone":"a&b","instance":"g1"},
			"values":[[100,"0.001"],[102,"0.002"],[104,"NaN"],[106,"+Inf"],[150,"0.004"]]}]}}`)
	}))
	defer prometheus.Close()
	var out strings.Builder
	o := options{dashboard: boardFile(t), prometheus: prometheus.URL, from: 100, to: 200}
	require.NoError(t, run(context.Background(), &out, o))
	require.Equal(t, []string{`rate(x{zone=~".*"}[20s])`, "y"}, asked)
	picture := out.String()
	for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, picture, "Requests &lt;all&gt;")
	require.Contains(t, picture, "a&amp;b on g1")
	require.Contains(t, picture, "5 ms", "the top of the panel")
	require.Equal(t, 2, strings.Count(picture, "<polyline"), "a gap in the data is a gap in the line")
	require.Contains(t, picture, ">nothing<", "the other panel has no data")
}

// TestNumbersAndColors draws a single number, which is the last and has the color of
// its threshold, and a series with a color of its own.
func TestNumbersAndColors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dashboard.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"panels":[
		{"title":"Refused","type":"stat","gridPos":{"x":0,"y":0,"w":3,"h":4},
		 "fieldConfig":{"defaults":{"unit":"percentunit","thresholds":{"steps":[{"color":"text","value":null},{"color":"orange","value":0.2},{"color":"red","value":0.9}]}}},
		 "targets":[{"expr":"x","legendFormat":"x"}]},
		{"title":"Outcomes","type":"timeseries","gridPos":{"x":0,"y":4,"w":12,"h":8},"fieldConfig":{"defaults":{"unit":"short"},
		 "overrides":[{"matcher":{"id":"byName","options":"refused"},"properties":[{"id":"color","value":{"mode":"fixed","fixedColor":"#EA9A12"}}]}]},
		 "targets":[{"expr":"y","legendFormat":"{{outcome}}"}]}]}`), 0o600))
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"result":[{"metric":{"outcome":"refused"},"values":[[100,"0.1"],[200,"0.314"]]}]}}`)
	}))
	defer prometheus.Close()
	var out strings.Builder
	require.NoError(t, run(context.Background(), &out, options{dashboard: file, prometheus: prometheus.URL, from: 100, to: 200}))
	require.Contains(t, out.String(), `class="orange number" x="23" y="77" text-anchor="start">31 %</text>`)
	require.Contains(t, out.String(), `<polyline stroke="#EA9A12"`)
}

func TestPictureErrors(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"status":"error","error":"parse error"}`)
	}))
	t.Cleanup(refusing.Close)
	file := boardFile(t)
	tests := map[string]struct {
		options options
		want    string
	}{
		"no dashboard":  {options{dashboard: "nowhere.json"}, "reading the dashboard"},
		"no prometheus": {options{dashboard: file, prometheus: "http://127.0.0.1:1"}, `panel "Requests <all>": asking Prometheus`},
		"an error":      {options{dashboard: file, prometheus: refusing.URL}, "parse error"},
		"from after to": {options{dashboard: file, from: 2, to: 1}, "from: 2 is not before the end, 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, run(context.Background(), io.Discard, test.options), test.want)
		})
	}
}

func TestRecordingRules(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(context.Background(), &out, options{dashboard: boardFile(t), rules: true}))
	require.Contains(t, out.String(), `expr: "rate(x{zone=~\".*\"}[20s])"`)
	require.Contains(t, out.String(), "record: panel_1_0\n        expr: \"y\"\n")
}
