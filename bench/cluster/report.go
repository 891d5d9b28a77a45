package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// The marks between which the results stand in their file, which has other parts.
const (
	beginMark = "<!-- cluster:begin -->"
	endMark   = "<!-- cluster:end -->"
)

// notes is what the numbers do not tell: why some are missed, and what was tried.
//
//go:embed notes.md
var notes string

// report is what a run has found out.
type report struct {
	options
	offered        float64 // decisions per second of the loads on a Redis that is near
	delayed        float64 // and of those through the proxy
	tooMuch        bool    // whether the machine could do neither that
	tooMuchDelayed bool    // nor that
	delays         []addedDelay
	measured       []*measured
	parts          figures
	took           time.Duration
	busy           string // what is said where the machine had other work at the start
}

// otherWork says so where the machine is not quiet: Linux tells how many threads
// have wanted a processor, over the last minute.
func otherWork() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	var load float64
	if _, err := fmt.Sscan(string(text), &load); err != nil || load < 0.5 {
		return ""
	}
	return fmt.Sprintf(" **The machine was not quiet: its load was %.1f before the run, so that only ratios count.**", load)
}

// markdown is the part of the results file.
func (r *report) markdown() string {
	var out strings.Builder
	command := "make bench-cluster"
	if r.quick {
		command = "go run ./cluster -quick"
	}
	fmt.Fprintf(&out, "## Twenty instances and one Redis\n\n`%s`, %.0f s, %d cores for the load, the instances and Redis together, %s, Redis %s, %s/%s.%s\n",
		command, r.took.Seconds(), runtime.NumCPU(), runtime.Version(), redisVersion(), runtime.GOOS, runtime.GOARCH, r.busy)
	out.WriteString(r.rates())
	out.WriteString("Of the twenty hottest tenants every other is offered twice its limit, the rest half of it; one key and full demand are loads of their own.\n\n")
	r.writeGoals(&out)
	r.writeScenarios(&out)
	r.writeSeconds(&out)
	r.writeDelays(&out)
	out.WriteString("\n" + notes)
	return out.String()
}

// rates tells what was offered, and why no more.
func (r *report) rates() string {
	short := func(tooMuch bool) string {
		if tooMuch {
			return " (it cannot do that either)"
		}
		return ""
	}
	return fmt.Sprintf("Wanted were %.0f decisions/s. Offered were, at fixed times and over %d tenants (zipf, s = %v), %.0f/s%s, and %.0f/s%s where a proxy stands before Redis, which takes its part of the cores: "+
		"a quarter more than that is what this machine could do, without a delay, in a probe of one second.\n",
		r.rate, tenantCount, zipfExponent, r.offered, short(r.tooMuch), r.delayed, short(r.tooMuchDelayed))
}

func (r *report) writeGoals(out *strings.Builder) {
	out.WriteString("| what | at least | aim | measured | met |\n| --- | --- | --- | --- | --- |\n")
	for _, g := range r.goals() {
		out.WriteString(g.row())
	}
	out.WriteString("\nVoid: more than 1 % of that load's decisions came from the fallback although Redis was up, because the machine had no time for them. Loads with a delay are void where `" + control +
		"` is, their control: the proxy without a delay. Loads whose Redis is killed are void where the same with a Redis is.\n")
}

// writeScenarios has what each load took and cost. Times count from when a
// request was due, so that what waits is seen; those in brackets from the call.
func (r *report) writeScenarios(out *strings.Builder) {
	out.WriteString("\nTimes in ms, from when a request was due; in brackets from the call of `Take`. Redis' CPU in cores, of a Redis that is killed until then; own CPU is that of the load and the instances, per decision. " +
		"`over` is the most that a hot tenant was admitted beyond capacity + refill × time, in any span, in tokens, and in brackets what Redis granted of that; `error` is the sum of all differences to one exact bucket for each hot tenant.\n\n" +
		"| load | decisions/s | p50 | p99 | p99.9 | Redis CPU | own CPU, µs | calls per decision | redis / prefetch / remembered / local, % | over (without local) | error, % |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, m := range r.measured {
		fmt.Fprintf(out, "| %s | %.0f | %s | %s | %s | %.2f | %d | %.3f | %s | %.0f (%.0f) | %.2f |\n", m.label(), m.reached,
			m.times(0), m.times(1), m.times(2), m.redisCPU, m.ownCPU.Microseconds(), m.calls, m.sourceShares(), m.over, m.overShared, 100*m.error)
	}
}

func (r *report) writeSeconds(out *strings.Builder) {
	out.WriteString("\nAdmitted of allowed in each second, all hot tenants together that ask for more than their limit:\n\n| load | |\n| --- | --- |\n")
	for _, m := range r.measured {
		if len(m.seconds) == 0 || m.demanded.allowed == 0 {
			continue
		}
		fmt.Fprintf(out, "| %s |", m.label())
		for _, ratio := range m.seconds {
			fmt.Fprintf(out, " %.3f", ratio)
		}
		out.WriteString(" |\n")
	}
}

func (r *report) writeDelays(out *strings.Builder) {
	out.WriteString("\nThe delaying proxy, as PING sees it, in ms:\n\n| delay | p50 | p99 | p50 of 32 at once |\n| --- | --- | --- | --- |\n")
	for _, d := range r.delays {
		fmt.Fprintf(out, "| %.1f | %.2f | %.2f | %.2f |\n", millis(d.wanted), millis(d.p50), millis(d.p99), millis(d.together))
	}
}

// label is the name in a table.
func (m *measured) label() string {
	if m.void {
		return "void: " + m.name
	}
	return m.name
}

func (m *measured) times(i int) string {
	return fmt.Sprintf("%.2f (%.2f)", millis(m.sinceDue[i]), millis(m.deciding[i]))
}

func (m *measured) sourceShares() string {
	return fmt.Sprintf("%.1f / %.1f / %.1f / %.2f", 100*m.shares[limit.SourceRedis], 100*m.shares[limit.SourcePrefetch],
		100*m.shares[limit.SourceRemembered], 100*m.shares[limit.SourceLocal])
}

// line is what is printed when a scenario has ended.
func (m *measured) line() string {
	return fmt.Sprintf("%-36s %6.0f/s  p50 %s  p99 %s  cpu %.2f  own %v  calls %.3f  %s  over %.0f (%.0f)  error %.2f %%", m.name, m.reached,
		m.times(0), m.times(1), m.redisCPU, m.ownCPU, m.calls, m.sourceShares(), m.over, m.overShared, 100*m.error)
}

// writeResults puts text between the marks of a file, or at the end of one that
// has none, and leaves the rest as it is.
func writeResults(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the results: %w", err)
	}
	before, rest, begins := strings.Cut(string(old), beginMark)
	_, after, ends := strings.Cut(rest, endMark)
	switch {
	case begins && !ends, !begins && strings.Contains(before, endMark):
		return fmt.Errorf("writing %s: it must have %s and then %s", path, beginMark, endMark)
	case !begins && before != "":
		before = strings.TrimRight(before, "\n") + "\n\n"
	}
	if !begins {
		after = "\n"
	}
	whole := before + beginMark + "\n" + text + endMark + after
	if err := os.WriteFile(path, []byte(whole), 0o644); err != nil { //nolint:gosec // it is for everyone to read
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}
