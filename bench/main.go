// Command bench measures what this rate limiter costs a gateway: Caddy with it,
// without it and with others in its place, side by side under the same load. It
// needs Linux, Go, redis-server and wrk, and runs in the folder it stands in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	plan     string
	rounds   int
	seconds  int
	out      string
	plot     string
	profiles string
	against  string
	only     string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.plan, "plan", planFull, "what is measured: full, quick or smoke")
	flags.IntVar(&o.rounds, "rounds", 0, "how often everything is measured; 0: as the plan says")
	flags.IntVar(&o.seconds, "seconds", 0, "how long each measurement takes; 0: as the plan says")
	flags.StringVar(&o.out, "out", "", "the page that gets the tables, between its markers; none: they are printed only")
	flags.StringVar(&o.plot, "plot", "", "the file for the plot (SVG); none: no plot")
	flags.StringVar(&o.profiles, "profiles", "", "the folder for CPU profiles; none: no profiles")
	flags.StringVar(&o.against, "against", "", "an earlier commit to compare with; none: no comparison")
	flags.StringVar(&o.only, "only", "", "measure only tables whose headings contain this; none: all")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	switch {
	case flags.NArg() > 0:
		return options{}, fmt.Errorf("reading arguments: %q is none of the flags", flags.Arg(0))
	case o.rounds < 0 || o.rounds > maxRounds:
		return options{}, fmt.Errorf("reading arguments: -rounds is from 1 to %d", maxRounds)
	case o.seconds < 0 || o.seconds > maxSeconds:
		return options{}, fmt.Errorf("reading arguments: -seconds is from 1 to %d", maxSeconds)
	}
	return o, nil
}

// run measures, and tells of it on out and in the files that the options name.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	p, err := planOf(o)
	if err != nil {
		return err
	}
	r, err := measured(ctx, o, p)
	if err != nil {
		return err
	}
	text := r.markdown()
	fmt.Fprint(out, text)
	if o.out != "" {
		if err := writeBetween(o.out, gatewayMarkers, text); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := os.WriteFile(o.plot, []byte(r.svg()), 0o644); err != nil { //nolint:gosec // a page's picture, for all to read
			return fmt.Errorf("writing the plot: %w", err)
		}
	}
	return r.unexpected()
}

// measured does all that the plan says, and ends all that it has started.
func measured(ctx context.Context, o options, p plan) (*results, error) {
	about, err := describe(ctx)
	if err != nil {
		return nil, err
	}
	l, err := newLaboratory(ctx, o.against)
	if err != nil {
		return nil, interrupted(ctx, err)
	}
	defer l.close()
	r, err := l.measure(ctx, p)
	if err != nil {
		return nil, l.explain(ctx, err)
	}
	if o.profiles != "" {
		if err := l.profile(ctx, p, o.profiles); err != nil {
			return nil, l.explain(ctx, err)
		}
	}
	r.about, r.command = about, p.command
	if l.earlier != nil {
		r.earlier = l.earlier.commit
	}
	return r, nil
}
