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
	cmd := exec.Command(binary, "run", "--config", config, "--adapter", "caddyfile")
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
	flags := []string{"build", "-trimpath", "-buildvcs=false", "-tags=nobadger,nomysql,nopgx", "-ldflags=-w -s", "-o", dir + "/"}
	out, err := exec.CommandContext(ctx, "go", append(flags, packages...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building Caddy, which works in the folder bench only: %w\n%s", err, out)
	}
	return nil
}

// local returns how many requests were decided in this gateway's memory.
func (g *gateway) local(ctx context.Context) (int64, error) {
	text, err := fetch(ctx, "http://"+g.admin+"/metrics")
	if err != nil {
		return 0, fmt.Errorf("reading the metrics of %s: %w", g.name, err)
	}
	return localOf(string(text))
}

// localOf adds up what the metrics tell of decisions in memory.
func localOf(metrics string) (int64, error) {
	var total float64
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "caddy_rate_limit_requests_total{") || !strings.Contains(line, `source="local"`) {
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
