package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caddygate/ratelimit/bench/due"
)

// generator sends requests at fixed times: the command in cmd/due, a process of its
// own, so that what it uses is told apart.
type generator struct{ binary string }

func newGenerator(dir string) generator { return generator{filepath.Join(dir, "due")} }

// fire puts the load on addr, so many requests a second, whatever the answers take.
func (g generator) fire(ctx context.Context, l due.Load) (shot, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Length+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.binary, "-addr", l.Addr, "-tenants", strconv.Itoa(l.Tenants),
		"-rate", strconv.FormatFloat(l.PerSecond, 'f', 3, 64), "-length", l.Length.String(), "-connections", strconv.Itoa(l.Connections))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return shot{}, fmt.Errorf("sending at fixed times: %w\n%s", err, errs.String())
	}
	var report due.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return shot{}, fmt.Errorf("reading what the generator says: %w\n%s", err, out.String())
	}
	s := shotOf(report)
	s.length = l.Length
	return s, nil
}

// shotOf is what the generator has seen, in the words of wrk's.
func shotOf(r due.Report) shot {
	return shot{
		requests: int64(r.Answered), statuses: int64(r.Statuses), broken: int64(r.Broken), took: r.Took, p50: r.P50, p99: r.P99,
		due: int64(r.Due), unsent: int64(r.Unsent), late50: r.Late50, late99: r.Late99, generatorCPU: r.CPU,
	}
}
