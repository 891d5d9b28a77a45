package main

import (
	"context"
	"net"
	"net/http"
	"time"
)

// upstream is the service behind the gateways that have one. It says ok.
type upstream struct{ server *http.Server }

func startUpstream(ctx context.Context, addr string) (*upstream, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	answer := []byte("ok")
	u := &upstream{&http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(answer)
		}),
	}}
	go func() { _ = u.server.Serve(listener) }()
	return u, nil
}

func (u *upstream) end() { _ = u.server.Close() }
