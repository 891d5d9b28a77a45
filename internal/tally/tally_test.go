package tally

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sumOf(t testing.TB, kind Kind, body string, parts int, paths ...string) (int64, bool) {
	t.Helper()
	parsed, err := ParsePaths(paths)
	require.NoError(t, err)
	r := NewReader(kind, parsed)
	for len(body) > 0 {
		n := min(len(body), max(1, parts))
		r.Write([]byte(body[:n]))
		body = body[n:]
	}
	return r.Sum()
}

func TestSum(t *testing.T) {
	t.Parallel()
	sse := "event: a\ndata: {\"usage\": {\"in\": 5}}\n\ndata: {\"usage\": {\"out\": 1}}\r\n\r\n: note\n\ndata: {\"usage\":\ndata: {\"out\": 7}}\n\ndata: [DONE]\n\n"
	for name, test := range map[string]struct {
		kind  Kind
		body  string
		paths []string
		want  int64
		ok    bool
	}{
		"one":                  {Document, `{"usage": {"total_tokens": 42}}`, []string{"usage.total_tokens"}, 42, true},
		"sum":                  {Document, `{"usage":{"a":1,"b":2},"a":9}`, []string{"usage.a", "usage.b"}, 3, true},
		"weight":               {Document, `{"usage":{"a":10,"b":2}}`, []string{"usage.a", "usage.b*4"}, 18, true},
		"one is missing":       {Document, `{"usage":{"a":10}}`, []string{"usage.a", "usage.b*4"}, 10, true},
		"all are missing":      {Document, `{"usages":{"a":10}}`, []string{"usage.a"}, 0, false},
		"the first choice":     {Document, `{"b":2,"a":1}`, []string{"a|b"}, 1, true},
		"the second choice":    {Document, `{"b":2}`, []string{"a.x|b"}, 2, true},
		"in a text":            {Document, `{"x":"{\"a\": 5}","a":1}`, []string{"a"}, 1, true},
		"in an array":          {Document, `{"x":[{"a":5},{"a":6}],"a":1}`, []string{"a"}, 1, true},
		"too deep":             {Document, `{"x":{"a":5}}`, []string{"a"}, 0, false},
		"after a sibling":      {Document, `{"usage":{"d":{"a":9},"a":3}}`, []string{"usage.a"}, 3, true},
		"the last of two":      {Document, `{"a":1,"a":2}`, []string{"a"}, 2, true},
		"null":                 {Document, `{"a":null,"b":3}`, []string{"a", "b"}, 3, true},
		"zero":                 {Document, `{"a":0}`, []string{"a"}, 0, true},
		"at the end":           {Document, `7`, []string{"a"}, 0, false},
		"negative":             {Document, `{"a":-5}`, []string{"a"}, 0, false},
		"a fraction":           {Document, `{"a":1.5}`, []string{"a"}, 0, false},
		"an exponent":          {Document, `{"a":1e9}`, []string{"a"}, 0, false},
		"30 digits":            {Document, `{"a":123456789012345678901234567890}`, []string{"a"}, 0, false},
		"a million digits":     {Document, `{"a":` + strings.Repeat("1", 1_000_000) + `}`, []string{"a"}, 0, false},
		"a text":               {Document, `{"a":"5"}`, []string{"a"}, 0, false},
		"an object":            {Document, `{"a":{}}`, []string{"a"}, 0, false},
		"over 2^53":            {Document, `{"a":9007199254740993}`, []string{"a"}, 0, false},
		"2^53":                 {Document, `{"a":9007199254740992}`, []string{"a"}, 9007199254740992, true},
		"a sum over 2^53":      {Document, `{"a":9007199254740992}`, []string{"a*2"}, 0, false},
		"cut short":            {Document, `{"usage":{"a":1`, []string{"usage.a"}, 1, true},
		"an escaped key":       {Document, `{"\u0061":1}`, []string{"a"}, 0, false},
		"events, the last":     {Events, sse, []string{"usage.in", "usage.out"}, 12, true},
		"lines, the last":      {Lines, "{\"a\":1}\n{\"a\":2}\n{\"b\":3}\n", []string{"a"}, 2, true},
		"lines, one is broken": {Lines, "{\"x\":{\n{\"a\":2}\n", []string{"a"}, 2, true},
		"deep":                 {Document, strings.Repeat(`{"x":[`, 100_000) + strings.Repeat(`]}`, 100_000) + `{"a":4}`, []string{"a"}, 4, true},
		"a long text":          {Document, `{"x":"` + strings.Repeat("y", 1<<20) + `","a":4}`, []string{"a"}, 4, true},
		"not read":             {Other, `{"a":4}`, []string{"a"}, 0, false},
	} {
		for _, parts := range []int{1, 2, 3, 7, 1 << 30} {
			got, ok := sumOf(t, test.kind, test.body, parts, test.paths...)
			require.Equal(t, test.ok, ok, "%s in parts of %d", name, parts)
			if ok {
				require.Equal(t, test.want, got, "%s in parts of %d", name, parts)
			}
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"\n", "\r\n", "\r"} {
		body := strings.ReplaceAll("data: a\n\n: comment\n\nevent: x\ndata: b\ndata: c\n\ndata: cut", "\n", ends)
		for _, parts := range []int{1, 3, 1000} {
			r := NewReader(Events, nil)
			for rest := body; len(rest) > 0; {
				n := min(len(rest), parts)
				r.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			require.EqualValues(t, 2, r.Events(), "%q in parts of %d", ends, parts)
		}
	}
}

func TestPathsRefused(t *testing.T) {
	t.Parallel()
	for _, paths := range [][]string{{}, {""}, {"a..b"}, {"a|"}, {"a*0"}, {"a*x"}, {"a*"}, {"a b"}, {`a"`}, {strings.Repeat("a", 300)}, make([]string, 17)} {
		_, err := ParsePaths(paths)
		require.Error(t, err, "%q", paths)
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for media, want := range map[string]Kind{
		"application/json": Document, "application/json; charset=utf-8": Document, "application/problem+json": Document,
		"text/event-stream": Events, "Text/Event-Stream;x=y": Events, "application/x-ndjson": Lines, "text/html": Other, "": Other, ";;": Other,
	} {
		require.Equal(t, want, KindOf(media), media)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"0": true, "17": true, "007": true, "": false, "-5": false, "+5": false, "1e9": false, "abc": false, "1.0": false, " 1": false, strings.Repeat("1", 30): false} {
		_, got := Number(text)
		require.Equal(t, ok, got, text)
	}
}

// TestRandomDocuments compares with a decoder that reads all of it.
func TestRandomDocuments(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(6); {
		case n < 2 && depth < 4:
			object := map[string]any{}
			for range random.IntN(4) {
				object[string(rune('a'+random.IntN(3)))] = value(depth + 1)
			}
			return object
		case n == 2 && depth < 4:
			return []any{value(depth + 1), value(depth + 1)}
		case n == 3:
			return `text "a": 5, {`
		default:
			return random.IntN(1000)
		}
	}
	for range 3000 {
		document := map[string]any{"a": value(0), "b": value(0)}
		text, err := json.Marshal(document)
		require.NoError(t, err)
		want, wanted := int64(0), false
		if inner, ok := document["a"].(map[string]any); ok {
			if n, ok := inner["b"].(int); ok {
				want, wanted = int64(n), true
			}
		}
		got, ok := sumOf(t, Document, string(text), 1+random.IntN(9), "a.b")
		require.Equal(t, wanted, ok, "%s", text)
		require.Equal(t, want, got, "%s", text)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), uint8(3))
	f.Add([]byte("data: {\"a\":{\"b\":1}}\n\n"), uint8(1))
	paths, err := ParsePaths([]string{"a.b", "c|a.d*2"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte, parts uint8) {
		for _, kind := range []Kind{Document, Events, Lines} {
			whole, cut := NewReader(kind, paths), NewReader(kind, paths)
			whole.Write(body)
			for rest := body; len(rest) > 0; {
				n := min(len(rest), max(1, int(parts)))
				cut.Write(rest[:n])
				rest = rest[n:]
			}
			one, ok := whole.Sum()
			other, also := cut.Sum()
			if one != other || ok != also || whole.Events() != cut.Events() {
				t.Fatalf("%d %t and %d %t, %d and %d events", one, ok, other, also, whole.Events(), cut.Events())
			}
		}
	})
}

func BenchmarkDocument(b *testing.B) {
	var body strings.Builder
	body.WriteString(`{"choices":[`)
	for i := range 2000 {
		fmt.Fprintf(&body, `{"index":%d,"message":{"role":"assistant","content":"%s"}},`, i, strings.Repeat("lorem ipsum ", 20))
	}
	body.WriteString(`{}],"usage":{"prompt_tokens":12,"completion_tokens":345}}`)
	text := []byte(body.String())
	paths, err := ParsePaths([]string{"usage.prompt_tokens", "usage.completion_tokens*4"})
	require.NoError(b, err)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r := NewReader(Document, paths)
		r.Write(text)
		if sum, ok := r.Sum(); !ok || sum != 12+4*345 {
			b.Fatal(sum, ok)
		}
	}
}
