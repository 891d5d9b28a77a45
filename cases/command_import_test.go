package cases_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// importing runs `caddy rate-limit import` with the input, and returns its exit
// code and what it prints.
func importing(t *testing.T, g *gateway.Process, input string, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := g.Command(append([]string{"rate-limit", "import"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		code = exit.ExitCode()
	}
	require.NotContains(t, stdout.String()+stderr.String(), "secret")
	return code, stdout.String(), stderr.String()
}

// TestCommandImport shows the differences, writes them with --yes, and a running
// gateway follows.
func TestCommandImport(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	dsn := strings.Replace(server.URL(""), "postgres@", "postgres:secret@", 1)
	g := gateway.New(t, "RULES_URL="+dsn)
	schema, err := g.Command("rate-limit", "schema").Output()
	require.NoError(t, err)
	server.Exec(t, string(schema))
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'a', 5, 1), ('shop-b', 'a', 6, 1)`)
	g.Start(gateway.Site("rate_limit {\nrules {env.RULES_URL}\ndefault 1/1000s\n}", gateway.Answers("rate_limit a")))
	gateway.Eventually(t, 10*time.Second, "the rules are loaded", func() bool { return g.Get("/", "shop-a").Field("X-RateLimit-Limit") == 5 })

	file := filepath.Join(t.TempDir(), "rules.csv")
	writeFile(t, file, "tenant_id,route_id,capacity,refill_per_second\nshop-a,a,9,1\n\"shop c\",a,8,2\n")
	code, out, errs := importing(t, g, "", "--dsn", "{env.RULES_URL}", "--delete-missing", file)
	require.Zero(t, code, errs)
	require.Equal(t, `+ "shop c" a capacity 8, refill_per_second 2
~ shop-a a capacity 5 -> 9
- shop-b a capacity 6, refill_per_second 1
1 inserted, 1 updated, 1 deleted, 0 unchanged, 0 not in the file and kept
nothing was written: run it again with --yes
`, out)

	code, out, errs = importing(t, g, "", "--dsn", "{env.RULES_URL}", "--yes", "--json", file)
	require.Zero(t, code, errs)
	require.JSONEq(t, `{"applied": true, "inserted": 1, "updated": 1, "deleted": 0, "unchanged": 0, "others": 1, "changes": [
		{"change": "insert", "tenant_id": "shop c", "route_id": "a", "after": {"capacity": "8", "refill_per_second": "2"}},
		{"change": "update", "tenant_id": "shop-a", "route_id": "a", "before": {"capacity": "5"}, "after": {"capacity": "9"}}]}`, out)
	gateway.Eventually(t, 10*time.Second, "the gateway follows", func() bool { return g.Get("/", "shop-a").Field("X-RateLimit-Limit") == 9 })
	require.Equal(t, 6, g.Get("/", "shop-b").Field("X-RateLimit-Limit"))

	code, out, _ = importing(t, g, `{"tenant_id":"shop-a","route_id":"a","capacity":9,"refill_per_second":1}`, "--dsn", dsn, "--yes", "--format", "jsonl", "-")
	require.Zero(t, code)
	require.Contains(t, out, "nothing to do")
}

// TestCommandImportAsDocumented shows for the page's file what the page says.
func TestCommandImportAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	_, page, found := strings.Cut(string(text), "```csv\n")
	require.True(t, found)
	file, page, _ := strings.Cut(page, "```")
	_, page, _ = strings.Cut(page, "```text\n")
	want, _, _ := strings.Cut(page, "```")
	server := servertest.Postgres(t)
	g := gateway.New(t, "RULES_URL="+server.URL(""))
	schema, err := g.Command("rate-limit", "schema").Output()
	require.NoError(t, err)
	server.Exec(t, string(schema))
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES
		('shop-a', 'create-order', 100, 50), ('~guest', 'create-order', 5, 0.5), ('c', 'a', 1, 1), ('c', 'b', 1, 1), ('c', 'c', 1, 1), ('c', 'd', 1, 1)`)
	code, out, errs := importing(t, g, file, "--dsn", "{env.RULES_URL}", "--format", "csv", "-")
	require.Zero(t, code, errs)
	require.Equal(t, want, out)
}

// TestCommandImportEndsWhenInterrupted, also while it waits for a line that never
// comes.
func TestCommandImportEndsWhenInterrupted(t *testing.T) {
	t.Parallel()
	g := gateway.New(t)
	cmd := g.Command("rate-limit", "import", "--dsn", "postgres://127.0.0.1/x", "--format", "csv", "-")
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer input.Close()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	_, err = input.Write(bytes.Repeat([]byte("#"), 1<<20)) // more than a pipe holds, so it is being read
	require.NoError(t, err)
	ended := make(chan error, 1)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		require.NoError(t, cmd.Process.Kill())
		require.Fail(t, "the command has not ended")
	}
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, errs.String(), "interrupted: nothing was written")
}

// TestCommandImportRefuses ends with 1, says why, and has written nothing.
func TestCommandImportRefuses(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	g := gateway.New(t, "RULES_URL="+strings.Replace(server.URL(""), "postgres@", "postgres:secret@", 1))
	const header = "tenant_id,route_id,capacity,refill_per_second\n"
	for name, test := range map[string]struct {
		input, want string
		args        []string
	}{
		"no dsn":       {"", "--dsn is needed", []string{"-"}},
		"placeholder":  {"", "--dsn: a placeholder in it is unknown or has no value: {env.NO_SUCH_URL}", []string{"--dsn", "{env.NO_SUCH_URL}", "-"}},
		"no URL":       {"", "it must be a URL", []string{"--dsn", "user:secret", "-"}},
		"no format":    {"", "--format is needed", []string{"--dsn", "{env.RULES_URL}", "-"}},
		"other format": {"", "--format: unknown format", []string{"--dsn", "{env.RULES_URL}", "--format", "xml", "-"}},
		"no file":      {"", "opening the file", []string{"--dsn", "{env.RULES_URL}", "/no/such/file.csv"}},
		"no table":     {header + "a,b,1,1\n", "the table rate_limit_rule does not exist: `caddy rate-limit schema` prints the SQL that creates it", []string{"--dsn", "{env.RULES_URL}", "--format", "csv", "-"}},
		"table's name": {header + "a,b,1,1\n", "table may have one dot", []string{"--dsn", "{env.RULES_URL}", "--table", "a.b.c", "--format", "csv", "-"}},
		"bad lines":    {header + "a,b,1,1\na,b,0,1\n\na,b,1,1\n", "line 3: capacity 0 is out of bounds: allowed are 1 to 2147483647\nline 5: duplicate: line 2 has", []string{"--dsn", "{env.RULES_URL}", "--yes", "--format", "csv", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := importing(t, g, test.input, test.args...)
			require.Equal(t, 1, code)
			require.Contains(t, errs, test.want)
			require.Empty(t, out)
		})
	}
	code, out, _ := importing(t, g, header+"a,b,0,1\n", "--dsn", "{env.RULES_URL}", "--json", "--format", "csv", "-")
	require.Equal(t, 1, code)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &report), out)
	require.EqualValues(t, 1, report["bad_count"])
	require.Equal(t, []any{map[string]any{"line": 2.0, "reason": "capacity 0 is out of bounds: allowed are 1 to 2147483647"}}, report["bad_lines"])
}

// TestCommandSet writes one rule, which a running gateway follows, and nothing where a
// word is wrong.
func TestCommandSet(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	dsn := strings.Replace(server.URL(""), "postgres@", "postgres:secret@", 1)
	g := gateway.New(t, "RULES_URL="+dsn)
	schema, err := g.Command("rate-limit", "schema").Output()
	require.NoError(t, err)
	server.Exec(t, string(schema))
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, algorithm) VALUES ('shop-b', 'create-order', 100, 50, 'sliding_window_log')`)
	g.Start(gateway.Site("rate_limit {\nrules {env.RULES_URL}\ndefault 1/1000s\n}", gateway.Answers("rate_limit create-order")))
	limited := func(tenant string, to int) {
		t.Helper()
		gateway.Eventually(t, 10*time.Second, "the rule is followed", func() bool { return g.Get("/", tenant).Field("X-RateLimit-Limit") == to })
	}
	limited("shop-b", 100)
	set := func(input string, words ...string) (int, string, string) {
		cmd := g.Command(append([]string{"rate-limit", "set", "--dsn", "{env.RULES_URL}"}, words...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
		_ = cmd.Run()
		require.NotContains(t, stdout.String()+stderr.String(), "secret")
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	change := "~ shop-b create-order capacity 100 -> 40, refill_per_second 50 -> 20\n"
	code, out, errs := set("", "--dry-run", "shop-b", "create-order", "20/s", "burst", "40")
	require.Zero(t, code, errs)
	require.Equal(t, change+"nothing was written: run it again without --dry-run\n", out)
	code, out, errs = set("", "shop-b", "create-order", "20/s", "burst", "40")
	require.Zero(t, code, errs)
	require.Equal(t, change+"written\n", out)
	limited("shop-b", 40)
	code, out, errs = set("", "shop-b", "create-order", "20/s", "burst", "40")
	require.Zero(t, code, errs)
	require.Equal(t, "nothing to do\n", out)
	code, out, errs = set("shop-c\n", "-", "*", "5/m", "mode", "shadow")
	require.Zero(t, code, errs)
	require.Equal(t, "+ shop-c * capacity 5, refill_per_second 0.08333333333333333, mode shadow\nwritten\n", out)
	limited("shop-c", 5)

	for words, want := range map[string]string{
		"shop-b":                                   "requires at least 3 arg(s)",
		"shop-b create-order 20":                   "is not of the form <n>/<unit>",
		"shop-b create-order 20/s brust 4":         "did you mean burst?",
		"shop-b create-order 20/s burst":           "burst needs a value",
		"shop-b create-order 20/s burst x":         "allowed is a whole number from 1 to 2147483647",
		"shop-b create-order 20/s mode denied":     "allowed are enforce, shadow, unlimited, deny",
		"shop-b create-order 1/m burst 2000000000": "out of bounds",
		"shop-b a/b 1/m":                           "route",
		"- create-order 1/m":                       "standard input has no name",
		"--table nowhere shop-b create-order 1/m":  "nowhere",
	} {
		code, _, errs := set("", strings.Fields(words)...)
		require.NotZero(t, code, words)
		require.Contains(t, errs, want, words)
	}
	limited("shop-b", 40)
}
