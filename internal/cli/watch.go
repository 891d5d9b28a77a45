package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// watchInterval is how often a command that goes on asks.
const watchInterval = 2 * time.Second

// watching shows the answer of a command again and again.
type watching struct {
	out   io.Writer
	clear bool // the terminal before each
	next  <-chan time.Time
	ask   func() (body []byte, err error)
	print func(w io.Writer, body []byte) error
}

// run shows answers until the context ends. A gateway that does not answer is told,
// and asked again.
func (w *watching) run(ctx context.Context) error {
	for {
		var shown bytes.Buffer
		body, err := w.ask()
		if err == nil {
			err = w.print(&shown, body)
		}
		if err != nil {
			fmt.Fprintln(&shown, "Error:", err)
		}
		if w.clear {
			_, _ = io.WriteString(w.out, "\x1b[H\x1b[2J")
		}
		if _, err := w.out.Write(shown.Bytes()); err != nil {
			return fmt.Errorf("printing the answer: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.next:
		}
	}
}

// watch shows the command's answer until it is interrupted.
func (c *adminCommand) watch(addresses []string, query url.Values) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	w := watching{out: os.Stdout, clear: isTerminal(os.Stdout), next: ticker.C, print: c.print}
	w.ask = func() ([]byte, error) {
		body, err := c.askAll(addresses, query)
		if err != nil {
			return nil, clearError(err)
		}
		if c.goOn != nil {
			c.goOn(query, body)
		}
		return body, nil
	}
	if c.goOn != nil {
		w.clear = false
	}
	return w.run(ctx)
}

// isTerminal reports whether a file is a terminal, or something else that is no file,
// pipe or socket.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// eventsGoOn asks next for what has come since an answer, and for all of a gateway that
// has started anew.
func eventsGoOn(query url.Values, body []byte) {
	var told adminapi.Events
	if json.Unmarshal(body, &told) != nil {
		return
	}
	if known, _ := strconv.ParseInt(query.Get("after"), 10, 64); told.Last == 0 || told.Last < known {
		query.Del("after")
		return
	}
	query.Set("after", strconv.FormatInt(told.Last, 10))
}

// printEvents shows changes of state, a line each.
func printEvents(t *tables, e *adminapi.Events) {
	for _, event := range e.Events {
		words := make([]string, 0, len(event.Data))
		for _, key := range slices.Sorted(maps.Keys(event.Data)) {
			words = append(words, fmt.Sprint(key, " ", event.Data[key]))
		}
		name := strings.ReplaceAll(strings.TrimPrefix(event.Name, "rate_limit_"), "_", " ")
		t.table([]string{event.At.Format("2006-01-02 15:04:05Z"), joined(append([]string{name}, words...)...)})
	}
}
