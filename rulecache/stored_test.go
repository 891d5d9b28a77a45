package rulecache

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func TestStoredSnapshot(t *testing.T) {
	t.Parallel()
	full := Entry{Pair: Pair{Tenant: "t\"2 ж", Route: "*"}, Rule: limit.Rule{
		Capacity: 100, Refill: 1.0 / 86400 * 1000, Algorithm: limit.SlidingWindowCounter, Mode: limit.Shadow,
		Prefetch: limit.PrefetchAuto, Shards: 16,
	}}
	before := snapshot(t, entry("t1", "a", 1), full)
	before.loadedAt = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	text, err := before.encode()
	require.NoError(t, err)
	after, err := decode(text, 2)
	require.NoError(t, err)
	require.Equal(t, maps.Collect(before.rules.all()), maps.Collect(after.rules.all()))
	require.Equal(t, before.Hash(), after.Hash())
	require.Equal(t, before.LoadedAt(), after.LoadedAt())

	for name, broken := range map[string][]byte{
		"nothing":       nil,
		"half":          text[:len(text)/2],
		"other version": bytes.Replace(text, []byte(`"version":1`), []byte(`"version":2`), 1),
		"other number":  bytes.Replace(text, []byte(`"capacity":100`), []byte(`"capacity":101`), 1),
		"out of bounds": bytes.Replace(text, []byte(`"capacity":100`), []byte(`"capacity":-1`), 1),
		"other word":    bytes.Replace(text, []byte(`"shadow"`), []byte(`"maybe"`), 1),
		"another word":  bytes.Replace(text, []byte(`"sliding_window_counter"`), []byte(`"x"`), 1),
		"other route":   bytes.Replace(text, []byte(`"route":"a"`), []byte(`"route":"/"`), 1),
		"twice":         bytes.Replace(text, []byte(`"rules":[`), []byte(`"rules":[{"tenant":"t1","route":"a","capacity":1,"refill_per_second":1},`), 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode(broken, 10)
			require.Error(t, err)
		})
	}
	_, err = decode(text, 1)
	require.ErrorContains(t, err, "max_rules")
}

func FuzzDecode(f *testing.F) {
	before, err := NewSnapshot([]Entry{entry("t1", "a", 1), entry("*", "*", 2)})
	require.NoError(f, err)
	text, err := before.encode()
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"version":1,"hash":"00000000000000000000000000000000"}`))
	f.Add([]byte(`{"version":1,"rules":[{"capacity":1e400}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decode(text, 1000)
		if err != nil {
			return
		}
		again, err := s.encode()
		require.NoError(t, err)
		other, err := decode(again, 1000)
		require.NoError(t, err)
		require.Equal(t, s.Hash(), other.Hash())
	})
}

func FuzzRow(f *testing.F) {
	f.Add([]byte("t1"), []byte("a"), []byte("1"), []byte("1"), []byte("token_bucket|enforce|0|1"))
	f.Add([]byte("*"), []byte("*"), []byte("NaN"), []byte("-Infinity"), []byte("|||"))
	f.Add([]byte("\xff"), []byte("/"), []byte("1e400"), []byte("0x1p-1074"), []byte("x|y|auto|257"))
	f.Add([]byte("t1"), []byte("a"), []byte("1_000"), []byte(".5e1"), []byte("||-1|99999999999999999999"))
	f.Fuzz(func(t *testing.T, tenant, route, capacity, refill, options []byte) {
		r := row{[]byte("1"), tenant, route, capacity, refill}
		copy(r[firstOptionalColumn:], bytes.SplitN(options, []byte("|"), columnCount-firstOptionalColumn))
		b := newBuilder(0)
		b.add(&r)
		s := b.snapshot(time.Time{})
		rejected, _ := s.Rejected()
		require.Equal(t, 1, s.Len()+rejected)
		for pair, rule := range s.rules.all() {
			require.NoError(t, pair.check())
			again, err := limit.NewRule(rule)
			require.NoError(t, err)
			require.Equal(t, rule, again)
		}
	})
}
