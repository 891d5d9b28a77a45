package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine is what a run ran on, and with which versions.
type machine struct {
	cores    int
	model    string // of the processor
	kernel   string
	versions []string
	commit   string
	day      string
}

// describe asks the machine. What cannot be found out is left blank, but for what
// the run cannot do without.
func describe(ctx context.Context) (machine, error) {
	if runtime.GOOS != "linux" {
		return machine{}, fmt.Errorf("measuring: %s has no /proc, from which processor times come: run it on Linux", runtime.GOOS)
	}
	m := machine{cores: runtime.NumCPU(), day: time.Now().UTC().Format(time.DateOnly)}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	m.model = valueOf(string(cpuinfo), "model name")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.kernel = strings.TrimSpace(string(kernel))
	m.commit = firstLine(ctx, "git", "describe", "--always", "--dirty", "--tags")
	m.versions = append(m.versions, runtime.Version())
	for _, module := range []string{"github.com/caddyserver/caddy/v2", "github.com/mholt/caddy-ratelimit", "github.com/redis/go-redis/v9"} {
		m.versions = append(m.versions, firstLine(ctx, "go", "list", "-m", module))
	}
	redis := strings.Fields(firstLine(ctx, "redis-server", "--version"))
	if len(redis) > 2 {
		m.versions = append(m.versions, "Redis "+strings.TrimPrefix(redis[2], "v="))
	}
	if wrk := strings.Fields(firstLine(ctx, "wrk", "-v")); len(wrk) > 1 {
		m.versions = append(m.versions, "wrk "+wrk[1])
	}
	return m, nil
}

// firstLine is the first line that a command says, whatever it ends with.
func firstLine(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// valueOf finds `name : value` in a file like /proc/cpuinfo.
func valueOf(text, name string) string {
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// String is one paragraph of a page.
func (m machine) String() string {
	model := m.model
	if model != "" {
		model = " of " + model
	}
	commit := m.commit
	if commit != "" {
		commit = ", commit " + commit
	}
	return fmt.Sprintf("%s%s. %d cores%s, Linux %s. %s.",
		m.day, commit, m.cores, model, m.kernel, strings.Join(m.versions, ", "))
}
