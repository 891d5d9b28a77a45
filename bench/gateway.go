package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// gateway is a Caddy process that serves one site, with either answer.
type gateway struct {
	*process
	addrs [answers]string
	admin string
}

// startGateway starts one, which listens soon.
func startGateway(s site, binary, name string, p places) (*gateway, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of %s: %w", name, err)
	}
	config := filepath.Join(p.dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(s.caddyfile(p)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of %s: %w", name, err)
	}
	command := []string{binary, "run", "--config", config, "--adapter", "caddyfile"}
	if s.nice > 0 {
		command = append([]string{"nice", "-n", strconv.Itoa(s.nice)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+p.dir, "XDG_DATA_HOME="+p.dir, "XDG_CONFIG_HOME="+p.dir)
	cmd.Env = append(cmd.Env, strings.Fields(s.env)...)
	process, err := launch(cmd, name, filepath.Join(p.dir, "log"))
	if err != nil {
		return nil, err
	}
	return &gateway{process, p.addrs, p.admin}, nil
}

// build makes the builds of Caddy in dir, with the flags that xcaddy builds with.
// They are built in this module, not with xcaddy, so that all of them have the
// same Caddy and the same versions of everything else.
func build(ctx context.Context, dir string, builds ...string) error {
	packages := make([]string, len(builds))
	for i, name := range builds {
		packages[i] = "./cmd/" + name
	}
	flags := append(buildFlags(), "-o", dir+"/")
	out, err := exec.CommandContext(ctx, "go", append(flags, packages...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building Caddy, which works in the folder bench only: %w\n%s", err, out)
	}
	return nil
}

// buildFlags are those that all builds have in common.
func buildFlags() []string {
	return []string{"build", "-trimpath", "-buildvcs=false", "-tags=nobadger,nomysql,nopgx", "-ldflags=-w -s"}
}

// counts are what a gateway of ours has counted so far.
type counts struct {
	redis  int64 // decisions by Redis
	local  int64 // decisions in the gateway's memory although it has a Redis
	opened int64 // how often the breaker has opened
}

// minus is what was counted since.
func (c counts) minus(before counts) counts {
	return counts{c.redis - before.redis, c.local - before.local, c.opened - before.opened}
}

// counts reads the gateway's metrics.
func (g *gateway) counts(ctx context.Context) (counts, error) {
	text, err := fetch(ctx, "http://"+g.admin+"/metrics")
	if err != nil {
		return counts{}, fmt.Errorf("reading the metrics of %s: %w", g.name, err)
	}
	return countsOf(string(text))
}

// countsOf adds up what the metrics tell.
func countsOf(metrics string) (c counts, err error) {
	const requests, changes = "caddy_rate_limit_requests_total{", "caddy_rate_limit_state_changes_total{"
	for _, series := range []struct {
		total       *int64
		name, label string
	}{
		{&c.redis, requests, `source="redis"`},
		{&c.local, requests, `source="local"`},
		{&c.opened, changes, `event="rate_limit_breaker_opened"`},
	} {
		if *series.total, err = sumOf(metrics, series.name, series.label); err != nil {
			return counts{}, err
		}
	}
	return c, nil
}

// sumOf adds up the series of a name that have a label.
func sumOf(metrics, name, label string) (int64, error) {
	var total float64
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name) || !strings.Contains(line, label) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("reading %q: %w", strings.TrimSpace(line), err)
		}
		total += n
	}
	return int64(total), nil
}

// fetch gets what a gateway's admin API has there.
func fetch(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("getting %s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
