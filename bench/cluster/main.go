// Command cluster measures twenty limiter instances against one Redis: what they
// admit together against what one bucket would have admitted, what a decision
// takes, and what Redis spends on it. It starts the redis-server itself and talks
// to 127.0.0.1 only. See RESULTS.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// options are the command's flags.
type options struct {
	quick   bool
	rate    float64
	root    string
	results string
}

func main() {
	if role := os.Getenv(proxyRole); role != "" {
		exit(serveProxy(role))
	}
	var o options
	flag.BoolVar(&o.quick, "quick", false, "shorter loads, in about a minute; the numbers are rough")
	flag.Float64Var(&o.rate, "rate", 50_000, "decisions per second to offer, or as many as this machine can; from 1000 to 200000")
	flag.StringVar(&o.root, "root", "..", "the folder of the module that is measured")
	flag.StringVar(&o.results, "results", "", "the file to write the results into, between their marks; none: standard output only")
	flag.Parse()
	exit(run(o))
}

// exit ends the process, with what went wrong if anything did.
func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	os.Exit(1)
}

func run(o options) error {
	if o.rate < 1000 || o.rate > 200_000 {
		return fmt.Errorf("rate %v is out of bounds: allowed are 1000 to 200000", o.rate)
	}
	began := time.Now()
	r := &report{options: o, busy: otherWork()}
	if err := r.measureCluster(); err != nil {
		return err
	}
	if err := r.measureParts(); err != nil {
		return err
	}
	r.took = time.Since(began)
	text := r.markdown()
	fmt.Print("\n", text)
	if o.results == "" {
		return nil
	}
	return writeResults(o.results, text)
}
