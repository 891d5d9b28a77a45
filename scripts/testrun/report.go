package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// silence is how long nothing is told at most while tests run.
const silence = 15 * time.Second

// leftOut begins what servertest.All logs of a test that is shorter than it can be.
const leftOut = "left out: "

// event is a line of `go test -json`.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
	ImportPath                    string // of what does not build
	Elapsed                       float64
}

// report tells a person what the events mean.
type report struct {
	out     io.Writer
	began   time.Time
	told    time.Time
	running map[string]time.Time // tests, by package and name
	output  map[string][]string  // of what has not ended
	left    []string
	passed  int
	skipped int
}

func newReport(out io.Writer) *report {
	return &report{out: out, began: time.Now(), told: time.Now(), running: map[string]time.Time{}, output: map[string][]string{}}
}

// follow tells of the events until there are no more.
func (r *report) follow(events <-chan event) {
	tick := time.NewTicker(silence / 5)
	defer tick.Stop()
	for {
		select {
		case e, more := <-events:
			if !more {
				return
			}
			r.add(e)
		case now := <-tick.C:
			if now.Sub(r.told) >= silence {
				r.wait(now)
			}
		}
	}
}

func (r *report) add(e event) {
	name := strings.TrimSpace(e.Package + " " + e.Test)
	switch e.Action {
	case "output":
		r.output[name] = append(r.output[name], e.Output)
		if _, what, found := strings.Cut(e.Output, leftOut); found {
			r.left = append(r.left, e.Test+": "+strings.TrimSpace(what))
		}
	case "build-output":
		r.tell("%s", strings.TrimRight(e.Output, "\n"))
	case "run", "cont":
		r.running[name] = e.Time
	case "pause":
		delete(r.running, name)
	case "pass", "skip", "fail":
		r.done(name, e)
	}
}

// done tells of a package that ended, and of a test that failed.
func (r *report) done(name string, e event) {
	if e.Action == "fail" {
		r.tell("%s", strings.TrimRight(strings.Join(r.output[name], ""), "\n"))
		r.unended(e)
	}
	if e.Test != "" && e.Action == "pass" {
		r.passed++
	}
	if e.Test != "" && e.Action == "skip" {
		r.skipped++
	}
	if e.Test == "" && !slices.ContainsFunc(r.output[name], func(line string) bool { return strings.Contains(line, "[no test files]") }) {
		r.tell("%-4s %s (%.0f s)", e.Action, e.Package, e.Elapsed)
	}
	delete(r.running, name)
	delete(r.output, name)
}

// unended tells of the tests that a package took along when its process ended: a panic
// of another goroutine, a signal and an exit stand in the output of whichever ran.
func (r *report) unended(e event) {
	if e.Test != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.output)) {
		if strings.HasPrefix(name, e.Package+" ") {
			r.tell("did not end: %s", strings.TrimRight(strings.Join(r.output[name], ""), "\n"))
			delete(r.output, name)
			delete(r.running, name)
		}
	}
}

// wait tells what runs for longest.
func (r *report) wait(now time.Time) {
	names := slices.SortedFunc(maps.Keys(r.running), func(a, b string) int { return cmp.Or(r.running[a].Compare(r.running[b]), cmp.Compare(a, b)) })
	if len(names) == 0 {
		r.tell("…    building, %d tests passed", r.passed)
		return
	}
	_, test, _ := strings.Cut(names[0], " ")
	r.tell("…    %d tests passed, %d run, %s for %.0f s", r.passed, len(names), test, now.Sub(r.running[names[0]]).Seconds())
}

func (r *report) tell(format string, values ...any) {
	r.told = time.Now()
	fmt.Fprintf(r.out, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, values...))
}

// end tells what was left out, once.
func (r *report) end() {
	r.tell("%d tests passed, %d skipped, as they do not apply where they stand", r.passed, r.skipped)
	slices.Sort(r.left)
	for _, what := range slices.Compact(r.left) {
		fmt.Fprintf(r.out, "left out, in `make test-all`: %s\n", what)
	}
}
