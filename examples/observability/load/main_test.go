package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	var got [2]atomic.Int64
	gateway := func(i int) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") == "shop-a" {
				got[i].Add(1)
			}
		}))
	}
	first, second := gateway(0), gateway(1)
	defer first.Close()
	defer second.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{first.URL, second.URL}, []string{"shop-a=1000"}) }()
	require.Eventually(t, func() bool { return got[0].Load() > 5 && got[1].Load() > 5 }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ gateway, tenant, want string }{
		"another machine": {"http://example.com", "a=1", "allowed are addresses"},
		"no URL":          {"127.0.0.1:80", "a=1", "allowed are addresses"},
		"no rate":         {"http://127.0.0.1:1", "a", `"a": allowed is`},
		"no tenant":       {"http://127.0.0.1:1", "=1", `"=1": allowed is`},
		"rate 0":          {"http://127.0.0.1:1", "a=0", "from 1 to 1000"},
		"a flood":         {"http://127.0.0.1:1", "a=1001", "from 1 to 1000"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, run(t.Context(), []string{test.gateway}, []string{test.tenant}), test.want)
		})
	}
}
