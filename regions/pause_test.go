package regions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJoinIsNotKeptWaiting: a region that joins waits until every gateway has
// acknowledged what it read, so that the look after that one must be able to.
func TestJoinIsNotKeptWaiting(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_785_000_000, 0)
	books := newMemory(func() time.Time { return now })
	source, err := NewSource(Options{DSN: "postgres://127.0.0.1:1/x", Region: "eu"})
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Destruct()) }()
	p := &poller{source: source, settings: Settings{}.complete()}
	m := &source.member
	m.reader, m.now, m.drain = books, func() time.Time { return now }, time.Second
	for _, chance := range []float64{0, 0.1, 0.5, 0.999} {
		books.version++
		changed, err := m.poll(t.Context())
		require.NoError(t, err)
		require.True(t, changed)
		now = now.Add(300 * time.Millisecond) // what the job took meanwhile
		pause := p.pause(chance)
		require.LessOrEqual(t, pause, m.drain)
		now = now.Add(pause)
		_, err = m.poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, books.version, books.gateways[m.id].Acked, "the next look acknowledges it")
		require.False(t, m.owes())
	}
	p.failures = 1
	require.LessOrEqual(t, p.pause(0), firstBackoff+10*time.Millisecond)
}
