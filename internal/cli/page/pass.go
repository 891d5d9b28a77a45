package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// gateway is a gateway that the page shows.
type gateway struct {
	name   string // its address, as it was given
	host   string // what its admin API takes as its own
	client *http.Client
}

func newGateway(name string, address *Address) *gateway {
	return &gateway{name: name, host: address.host, client: &http.Client{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return address.dial(ctx) },
			MaxConnsPerHost:        4,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
		},
		// Caddy's admin API sends nobody elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (g *gateway) close() { g.client.CloseIdleConnections() }

const (
	// shortCall is how long a gateway may take to show something. The page asks
	// again, and says so meanwhile.
	shortCall = 3 * time.Second

	// longCall is how long it may take to do something, such as to load the rules.
	longCall = 35 * time.Second

	// longestBody is how many bytes of parameters a call may have.
	longestBody = 64 << 10

	// longestAnswer is how many bytes a gateway may answer.
	longestAnswer = 4 << 20
)

// callOf reads the path of a call: at/<number of the gateway>/rate_limit/….
func callOf(below string) (number int, call string, found bool) {
	rest, found := strings.CutPrefix(below, "at/")
	if !found {
		return 0, "", false
	}
	index, call, _ := strings.Cut(rest, "/")
	number, err := strconv.Atoi(index)
	if err != nil {
		return 0, "", false
	}
	return number, "/" + call, true
}

// isOfRateLimit reports whether a path, with its escapes, is below /rate_limit/ and
// nowhere else, however it is read. The admin API can load another configuration: of
// that, nothing is passed on.
func isOfRateLimit(call string) bool {
	return strings.HasPrefix(call, "/rate_limit/") && path.Clean(call) == call && !strings.ContainsAny(call, `%\;`)
}

// pass passes a call on to a gateway.
func (p *Page) pass(w http.ResponseWriter, r *http.Request, number int, call string) {
	switch {
	case number < 0 || number >= len(p.gateways):
		tell(w, r, http.StatusNotFound, fmt.Errorf("there is no gateway %d", number))
		return
	case !isOfRateLimit(call):
		tell(w, r, http.StatusForbidden, fmt.Errorf("%.100q is not passed on: only what is below /rate_limit/ is", call))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodPost && r.Method != http.MethodDelete:
		w.Header().Set("Allow", "GET, POST, DELETE")
		tell(w, r, http.StatusMethodNotAllowed, fmt.Errorf("%.20q is not allowed here", r.Method))
		return
	}
	within := longCall
	if r.Method == http.MethodGet {
		within = shortCall
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	got, err := p.gateways[number].ask(ctx, r, call)
	if err != nil {
		tell(w, r, http.StatusBadGateway, err)
		return
	}
	write(w, r, *got)
}

// ask makes a call of the admin API and returns the answer, which is JSON.
func (g *gateway) ask(ctx context.Context, r *http.Request, call string) (*answer, error) {
	target := "http://" + g.host + call
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, target, http.MaxBytesReader(nil, r.Body, longestBody)) //nolint:gosec // the host is the operator's, the path is checked
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	request.ContentLength = r.ContentLength
	if kind := r.Header.Get("Content-Type"); kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	response, err := g.client.Do(request) //nolint:gosec // see above
	if err != nil {
		return nil, reason(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its answer broke off after %d bytes", len(body))
	case len(body) > longestAnswer:
		return nil, fmt.Errorf("its answer is longer than %d bytes", longestAnswer)
	case !json.Valid(body) && response.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("it answered %d without a reason", response.StatusCode)
	case !json.Valid(body):
		return nil, fmt.Errorf("it answered %d and no JSON: is that the admin address of a Caddy with this module, as new as this page?", response.StatusCode)
	}
	return &answer{response.StatusCode, kindJSON, body}, nil
}

// reason is why a gateway could not be asked, without its address, which the page
// has anyway.
func reason(err error) error {
	var timeout net.Error
	var remote *sshError
	var operation *net.OpError
	switch {
	case errors.As(err, &remote):
		return remote
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("it did not answer in time")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nobody listens there")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("it closed the connection without an answer")
	case errors.As(err, &operation):
		return operation.Err
	}
	return errors.Unwrap(err)
}
