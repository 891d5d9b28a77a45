package main

import (
	"bytes"
	"context"
	_ "embed" // the script
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

//go:embed request.lua
var requestScript []byte

// How much wrk sends at once: a request on each connection, and another as soon as
// it is answered.
const (
	wrkThreads     = 2
	wrkConnections = 64
)

// shot is what a generator of load has seen in one measurement.
type shot struct {
	requests int64
	statuses int64 // requests whose status was neither 2xx nor 3xx
	broken   int64 // connections and requests that failed
	took     time.Duration
	p50, p99 time.Duration

	// Where requests were due at fixed times, all of them and what concerns the
	// generator: those that found no connection free in time, how late it sent
	// others, and its processor time.
	due            int64
	length         time.Duration // in which they were
	unsent         int64
	late50, late99 time.Duration
	generatorCPU   time.Duration
}

// wrk is the load generator.
type wrk struct{ binary, script string }

func findWrk(script string) (wrk, error) {
	binary, err := exec.LookPath("wrk")
	if err != nil {
		return wrk{}, fmt.Errorf("finding wrk: install it with `apt-get install wrk`, or run `make bench`, which does: %w", err)
	}
	return wrk{binary, script}, nil
}

// fire puts the load on addr.
func (w wrk) fire(ctx context.Context, addr string, l load, length time.Duration) (shot, error) {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary, //nolint:gosec // wrk, as it was found, and nothing from outside
		"-t", strconv.Itoa(wrkThreads), "-c", strconv.Itoa(wrkConnections),
		"-d", strconv.Itoa(int(length.Seconds()))+"s", "--timeout", "10s", "-s", w.script, "http://"+addr+"/",
		"--", strconv.Itoa(l.tenants), l.distribution(), "tenant-")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return shot{}, fmt.Errorf("running wrk: %w\n%s%s", err, out.String(), errs.String())
	}
	s, err := parseShot(out.Bytes())
	if err != nil {
		return shot{}, fmt.Errorf("%w\n%s%s", err, out.String(), errs.String())
	}
	return s, nil
}

// parseShot reads the line of JSON that the script adds to what wrk prints.
func parseShot(out []byte) (shot, error) {
	start := bytes.LastIndex(out, []byte("\n{"))
	if start < 0 {
		return shot{}, errors.New("reading what wrk says: the script's line is missing")
	}
	var line struct {
		Requests, Duration, Statuses, Connect, Read, Write, Timeout, P50, P99 int64
	}
	if err := json.NewDecoder(bytes.NewReader(out[start:])).Decode(&line); err != nil {
		return shot{}, fmt.Errorf("reading what wrk says: %w", err)
	}
	if line.Requests <= 0 || line.Duration <= 0 {
		return shot{}, errors.New("reading what wrk says: no request was answered")
	}
	micro := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return shot{
		requests: line.Requests,
		statuses: line.Statuses,
		broken:   line.Connect + line.Read + line.Write + line.Timeout,
		took:     micro(line.Duration),
		p50:      micro(line.P50),
		p99:      micro(line.P99),
	}, nil
}
