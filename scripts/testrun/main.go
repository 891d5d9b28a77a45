// Command testrun runs `go test` in folders of modules, one after the other, and tells
// how it goes: a line for each package, which tests run while it takes long, the output
// of what fails, and at the end what the tests left out.
//
//	go run ./scripts/testrun [flags of go test] -- folder...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	flags, folders := os.Args[1:], []string{"."}
	if i := slices.Index(flags, "--"); i >= 0 {
		flags, folders = flags[:i], flags[i+1:]
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	r := newReport(os.Stdout)
	failed := false
	for _, folder := range folders {
		if err := run(ctx, r, folder, flags); err != nil {
			fmt.Fprintf(os.Stdout, "FAIL in %s: %v\n", folder, err)
			failed = true
		}
	}
	r.end()
	if failed {
		os.Exit(1)
	}
}

// run tests all packages of the module in the folder.
func run(ctx context.Context, r *report, folder string, flags []string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json"}, flags, []string{"./..."})...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("reading the tests' output: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the tests: %w", err)
	}
	lines := make(chan event)
	go read(out, lines)
	r.follow(lines)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("testing: %w", err)
	}
	return nil
}

// read passes on the events until the output ends.
func read(out io.Reader, events chan<- event) {
	defer close(events)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			e := event{Time: time.Now()}
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "output", Output: string(line)} // of go itself
			}
			events <- e
		}
		if err != nil {
			return
		}
	}
}
