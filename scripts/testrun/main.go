// Command testrun runs `go test` in folders of modules, in all of them at once, and tells
// how it goes: a line for each package, which tests run while it takes long, the output
// of what fails, and at the end what the tests left out.
//
//	go run ./scripts/testrun [flags of go test] -- folder...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
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
	events := make(chan event)
	failures := make([]error, len(folders))
	var modules sync.WaitGroup
	for i, folder := range folders {
		modules.Go(func() { failures[i] = run(ctx, events, folder, flags) })
	}
	go func() {
		modules.Wait()
		close(events)
	}()
	r := newReport(os.Stdout)
	r.follow(events)
	r.end()
	if err := errors.Join(failures...); err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
}

// run tests all packages of the module in the folder.
func run(ctx context.Context, events chan<- event, folder string, flags []string) error {
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
	read(out, events)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("testing the module in %s: %w", folder, err)
	}
	return nil
}

// read passes on the events until the output ends.
func read(out io.Reader, events chan<- event) {
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
