package due

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRequestsAreDueAtTheSameDistance(t *testing.T) {
	t.Parallel()
	l := Load{PerSecond: 4000, Length: 3 * time.Second}
	require.Equal(t, 12_000, l.total())
	require.Zero(t, l.at(0))
	require.Equal(t, 250*time.Microsecond, l.at(1))
	require.Equal(t, l.Length-250*time.Microsecond, l.at(l.total()-1), "the last is due before the end")
	// A rate that divides nothing does not drift.
	odd := Load{PerSecond: 6543.21, Length: time.Minute}
	require.Less(t, odd.at(odd.total()-1), odd.Length)
	require.GreaterOrEqual(t, odd.at(odd.total()), odd.Length)
	require.Equal(t, 1, Load{PerSecond: 1, Length: time.Millisecond}.total())
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var values []time.Duration
	require.Zero(t, quantile(values, 0.5))
	for i := 100; i > 0; i-- {
		values = append(values, time.Duration(i))
	}
	for part, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		require.Equal(t, want, quantile(values, part), "%v", part)
	}
	require.Equal(t, time.Duration(7), quantile([]time.Duration{7}, 0.99))
}

func TestLoadSaysWhatIsOutOfBounds(t *testing.T) {
	t.Parallel()
	good := Load{Addr: "127.0.0.1:80", Tenants: 1, PerSecond: 1, Length: time.Second, Connections: 1}
	require.NoError(t, good.Validate())
	for want, spoil := range map[string]func(*Load){
		"addr":          func(l *Load) { l.Addr = "localhost" },
		"0 tenants":     func(l *Load) { l.Tenants = 0 },
		"0.5 a second":  func(l *Load) { l.PerSecond = 0.5 },
		"300000 a":      func(l *Load) { l.PerSecond = 300_000 },
		"length -1s":    func(l *Load) { l.Length = -time.Second },
		"length 2m0s":   func(l *Load) { l.Length = 2 * time.Minute },
		"0 connections": func(l *Load) { l.Connections = 0 },
	} {
		bad := good
		spoil(&bad)
		require.ErrorContains(t, bad.Validate(), want)
	}
}

func TestAnswerOf(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 429 Too Many Requests\r\nServer: Caddy\r\ncontent-length: 2\r\n\r\n"
	for name, test := range map[string]struct {
		text           string
		status, length int
	}{
		"nothing yet":   {"", 0, 0},
		"half a head":   {head[:len(head)-2], 0, 0},
		"half a body":   {head + "o", 0, 0},
		"whole":         {head + "ok", 429, len(head) + 2},
		"more than one": {head + "okHTTP", 429, len(head) + 2},
		"no body":       {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 38},
	} {
		status, length, err := answerOf([]byte(test.text))
		require.NoError(t, err, name)
		require.Equal(t, []int{test.status, test.length}, []int{status, length}, name)
	}
	for _, text := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Lengths: 1\r\n\r\n",
	} {
		_, _, err := answerOf([]byte(text))
		require.ErrorIs(t, err, errAnswer, text)
	}
}

func FuzzAnswerOf(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, length, err := answerOf(text)
		if err == nil && length > len(text) {
			t.Fatalf("%d bytes of %d", length, len(text))
		}
	})
}
