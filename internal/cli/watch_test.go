package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatching shows an answer, a failure and an answer again, and ends when it is told.
func TestWatching(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	next := make(chan time.Time, 3)
	asked := 0
	var out bytes.Buffer
	w := watching{out: &out, clear: true, next: next}
	w.ask = func() ([]byte, error) {
		asked++
		next <- time.Time{}
		switch asked {
		case 2:
			return nil, errors.New("no Caddy answers")
		case 3:
			cancel()
			<-next
		}
		return []byte("answer"), nil
	}
	w.print = func(to io.Writer, body []byte) error {
		_, err := to.Write(append(body, '\n'))
		return err
	}
	require.NoError(t, w.run(ctx))
	const clear = "\x1b[H\x1b[2J"
	require.Equal(t, clear+"answer\n"+clear+"Error: no Caddy answers\n"+clear+"answer\n", out.String())
}

func TestWatchingCannotPrint(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	require.NoError(t, reader.Close())
	w := watching{out: writer, ask: func() ([]byte, error) { return nil, nil }, print: func(io.Writer, []byte) error { return nil }}
	require.ErrorContains(t, w.run(t.Context()), "printing the answer")
}

func TestEventsGoOn(t *testing.T) {
	t.Parallel()
	query := url.Values{}
	for _, step := range []struct{ answer, want string }{
		{`{"events":[],"last":0}`, ""},
		{`{"events":[],"last":7}`, "after=7"},
		{`no JSON`, "after=7"},
		{`{"events":[],"last":9}`, "after=9"},
		{`{"events":[],"last":2}`, ""}, // started anew
		{`{"events":[],"last":2}`, "after=2"},
	} {
		eventsGoOn(query, []byte(step.answer))
		require.Equal(t, step.want, query.Encode(), step.answer)
	}
}
