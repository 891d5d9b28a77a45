package cli

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// tables collects what a command shows to people.
type tables struct{ text bytes.Buffer }

// table adds lines whose cells stand below each other. Cells may come from
// clients, so nothing in them moves the cursor.
func (t *tables) table(lines ...[]string) {
	writer := tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		cells := make([]string, len(line))
		for i, cell := range line {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(writer, strings.Join(cells, "\t"))
	}
	_ = writer.Flush() // a buffer takes all
}

// under begins a table of n lines with the names of its columns.
func under(n int, names ...string) [][]string {
	return append(make([][]string, 0, n+1), names)
}

// line adds a line of text of our own.
func (t *tables) line(format string, arguments ...any) {
	fmt.Fprintf(&t.text, format+"\n", arguments...)
}

// writeTo writes it all.
func (t *tables) writeTo(w io.Writer) error {
	for line := range bytes.Lines(t.text.Bytes()) {
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printable is a text as it is, or quoted where a terminal would not just show it.
func printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(text)
		}
	}
	return text
}

// orDash is a text, and a dash where it is blank.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// span is a number of seconds as people write it.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

// msSpan is a wait in ms as people write it.
func msSpan(ms int64) string { return span(float64(ms) / 1000) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// rateOf is what a rule gives, in the words of the Caddyfile: blank where it only bounds
// how many requests run at once.
func rateOf(n *adminapi.Numbers) string {
	if n.Capacity == 0 {
		return ""
	}
	return rateText(n.RefillPerSecond) + " burst " + decimal(n.Capacity)
}

// rateText is a rate in the first of the units s, m, h and d in which it is a whole number, or
// one in so many seconds, or else as it is.
func rateText(refill float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}} {
		if n := refill * unit.seconds; isWhole(n) {
			return decimal(int64(math.Round(n))) + "/" + unit.name
		}
	}
	if period := 1 / refill; isWhole(period) {
		return "1/" + decimal(int64(math.Round(period))) + "s"
	}
	return strconv.FormatFloat(refill, 'g', 6, 64) + "/s"
}

// isWhole reports whether x is a whole number from 1, but for what rounding does.
func isWhole(x float64) bool {
	return x >= 0.5 && x < 1e15 && math.Abs(x-math.Round(x)) < 1e-9*x
}

// optionsOf is what a rule says beside its numbers.
func optionsOf(n *adminapi.Numbers) string {
	words := []string{n.Algorithm, n.Mode}
	if n.Prefetch != nil && fmt.Sprint(n.Prefetch) != "0" {
		words = append(words, fmt.Sprint("prefetch ", n.Prefetch))
	}
	if n.Shards > 1 {
		words = append(words, fmt.Sprint("shards ", n.Shards))
	}
	if n.Concurrent > 0 {
		words = append(words, fmt.Sprint("concurrent ", n.Concurrent))
	}
	return joined(words...)
}

// joined lists those words that are not blank.
func joined(words ...string) string {
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	return strings.Join(words, ", ")
}
