package main

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// goBench is a benchmark of the module's own that is part of the results.
type goBench struct {
	pkg, pattern, times string
}

// figures are a benchmark's: by its name, what it reports by unit.
type figures map[string]map[string]float64

// run runs it with `go test`, in the module's folder.
func (b goBench) run(root string) (figures, error) {
	args := []string{"test", "-run", "^$", "-bench", b.pattern, "-benchtime", b.times, "-timeout", "5m", "./" + b.pkg}
	fmt.Println("go", strings.Join(args, " "))
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("running the benchmarks of %s: %w\n%s", b.pkg, err, out)
	}
	found := parseBench(string(out))
	if len(found) == 0 {
		return nil, fmt.Errorf("running the benchmarks of %s: none matches %s", b.pkg, b.pattern)
	}
	return found, nil
}

// parseBench reads what `go test -bench` prints: a name, the iterations, and
// pairs of a number and its unit.
func parseBench(text string) figures {
	all := figures{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := fields[0]
		if dash := strings.LastIndexByte(name, '-'); dash > 0 {
			name = name[:dash] // the number of processors
		}
		units := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				units[fields[i+1]] = value
			}
		}
		all[name] = units
	}
	return all
}

// at returns a figure, and whether there is one.
func (f figures) at(name, unit string) (float64, bool) {
	value, found := f[name][unit]
	return value, found
}
