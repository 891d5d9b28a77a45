package gateway

import (
	"os"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"
)

// Command is Caddy with the arguments.
func (g *Process) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+g.Dir, "XDG_DATA_HOME="+g.Dir, "XDG_CONFIG_HOME="+g.Dir)
	cmd.Env = append(cmd.Env, g.env...)
	return cmd
}

// Caddy runs a command of the gateway's Caddy.
func (g *Process) Caddy(args ...string) (stdout, stderr string, code int) {
	g.t.Helper()
	cmd := g.Command(args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Shell runs a command line, with this Caddy as caddy, and returns what it prints.
func (g *Process) Shell(line string) string {
	g.t.Helper()
	line = strings.ReplaceAll(line, "localhost:2019", g.Admin)
	cmd := exec.Command("bash", "-c", `caddy() { "$0" "$@"; }; `+line, os.Args[0])
	cmd.Env = append(g.Command().Env, "CADDY_ADMIN="+g.Admin)
	out, err := cmd.Output()
	require.NoError(g.t, err, line)
	return string(out)
}

// Validates runs `caddy validate` on a Caddyfile and returns what it prints.
func (g *Process) Validates(caddyfile string) string {
	g.t.Helper()
	path := g.Dir + "/Caddyfile"
	require.NoError(g.t, os.WriteFile(path, []byte(g.Fill(caddyfile)), 0o600))
	out, _ := g.Command("validate", "--config", path, "--adapter", "caddyfile").CombinedOutput()
	return string(out)
}
