// Package page serves the page on which an operator sees the state of the gateways. It
// listens on this machine alone, at an address with a secret token, and passes the
// page's calls on to the admin APIs of the gateways. Open page.go first, then pass.go
// for what it lets through; the page itself is in assets.
package page

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Options say which gateways the page shows, and where it listens.
type Options struct {
	// Addresses are those of the gateways' admin APIs, as ParseAddress reads them.
	// There has to be one, and each is there once.
	Addresses []string

	// Port is where the page listens on 127.0.0.1. Default: a free one.
	Port int
}

// MaxGateways is how many gateways a page shows at most.
const MaxGateways = 100

// Page is a page that listens.
type Page struct {
	listener net.Listener
	token    string
	gateways []*gateway
	names    []byte // the JSON that tells the page which gateways there are
	assets   map[string]asset
}

// Open begins to listen. Whoever opens a page calls Serve, which ends it.
func Open(ctx context.Context, options Options) (*Page, error) {
	gateways, err := newGateways(options.Addresses)
	if err != nil {
		return nil, err
	}
	assets, err := readAssets()
	if err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(options.Port)))
	if err != nil {
		return nil, fmt.Errorf("listening for the page: %w", err)
	}
	p := &Page{listener: listener, token: rand.Text(), gateways: gateways, assets: assets}
	p.names = p.list()
	return p, nil
}

// newGateways reads the addresses.
func newGateways(addresses []string) ([]*gateway, error) {
	if len(addresses) == 0 || len(addresses) > MaxGateways {
		return nil, fmt.Errorf("%d addresses of gateways: allowed are 1 to %d", len(addresses), MaxGateways)
	}
	seen := map[string]bool{}
	gateways := make([]*gateway, 0, len(addresses))
	for _, text := range addresses {
		address, err := ParseAddress(text)
		if err != nil {
			return nil, err
		}
		if seen[text] {
			return nil, fmt.Errorf("address %q is there twice: name each gateway once", text)
		}
		seen[text] = true
		gateways = append(gateways, newGateway(text, address))
	}
	return gateways, nil
}

// list is what the page is told of the gateways.
func (p *Page) list() []byte {
	names := make([]string, len(p.gateways))
	for i, g := range p.gateways {
		names[i] = g.name
	}
	body, _ := json.Marshal(map[string]any{"gateways": names}) // texts
	return body
}

// URL is the page's address. It holds the token: whoever has it may do what the page
// can.
func (p *Page) URL() string { return "http://" + p.listener.Addr().String() + "/" + p.token + "/" }

// Serve serves the page until the context ends, and returns when no call is running
// any more.
func (p *Page) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      longCall + 10*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err := server.Shutdown(wait)
		if err != nil {
			err = server.Close() // a call that takes longer is cut off
		}
		ended <- err
	}()
	err := server.Serve(p.listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	err = <-ended
	for _, g := range p.gateways {
		g.close()
	}
	return err
}

// shutdownTimeout is how long calls may run on when the page ends.
const shutdownTimeout = 2 * time.Second

// ServeHTTP answers the page's requests, and refuses those of anybody else.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	path, err := p.admit(r)
	if err != nil {
		tell(w, r, http.StatusForbidden, err)
		return
	}
	if number, call, found := callOf(path); found {
		p.pass(w, r, number, call)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		tell(w, r, http.StatusMethodNotAllowed, fmt.Errorf("%.20q is not allowed here", r.Method))
		return
	}
	if path == "gateways" {
		write(w, r, answer{kind: kindJSON, body: p.names})
		return
	}
	file, found := p.assets[path]
	if !found {
		tell(w, r, http.StatusNotFound, fmt.Errorf("%.100q is not there", path))
		return
	}
	write(w, r, answer{kind: file.kind, body: file.body})
}
