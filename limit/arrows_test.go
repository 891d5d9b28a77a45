package limit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/caddygate/ratelimit"
	caddy  = "github.com/caddyserver/caddy/v2"
)

// arrows returns the imports among the packages of the module: each may import
// those listed and no other. The packages of Caddy modules and main have no list.
func arrows() map[string][]string {
	return map[string][]string{
		"":                              nil,
		"cmd/caddy":                     nil,
		"examples/observability/load":   {},
		"examples/observability/panels": {},
		"examples/video/load":           {},
		"limit":                         {},
		"limit/limittest":               {"limit"},
		"lua":                           {},
		"fleet":                         {"limit", "lua", "internal/background"},
		"front":                         {"limit", "internal/bounded"},
		"localbucket":                   {"limit", "internal/bounded"},
		"redisbucket":                   {"limit", "lua"},
		"regions":                       {"limit", "internal/background", "internal/pg"},
		"rulecache":                     {"limit", "internal/background", "internal/pg"},
		"internal/adminapi":             {"limit"},
		"internal/background":           {},
		"internal/block":                {"limit"},
		"internal/bounded":              {},
		"internal/cli":                  {"internal/adminapi", "internal/cli/page", "limit", "regions", "rulecache"},
		"internal/cli/page":             {},
		"internal/headers":              {"limit"},
		"internal/history":              {},
		"internal/hot":                  {"limit"},
		"internal/model":                {"limit"},
		"internal/pg":                   {"limit"},
		"internal/servertest":           {},
		"internal/tally":                {},
		"cases":                         nil,
		"cases/gateway":                 nil,
		"scripts/testrun":               {},
	}
}

// standardOnly reports whether a package imports nothing from outside either.
func standardOnly(name string) bool {
	return slices.Contains([]string{"limit", "lua", "internal/adminapi", "internal/background", "internal/bounded", "internal/cli/page", "internal/history"}, name)
}

// mayCaddy reports whether a package with a list may import Caddy, too.
func mayCaddy(name string) bool { return name == "internal/block" || name == "internal/cli" }

// listed is what the test reads of `go list`.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
	Error      *struct{ Err string }
}

// TestArrows reads `go list -deps` and fails where a package imports what the
// design does not allow. Imports of tests do not count.
func TestArrows(t *testing.T) {
	t.Parallel()
	noteSources(t, "..")
	all := goList(t)
	standard := map[string]bool{"C": true, "unsafe": true}
	for _, p := range all {
		standard[p.ImportPath] = p.Standard || standard[p.ImportPath]
	}
	seen := 0
	for _, p := range all {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		seen++
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		allowed, known := arrows()[name]
		if !known {
			t.Errorf("package %q has no arrows: add it to the design and to this test", name)
			continue
		}
		require.Nil(t, p.Error, name)
		if allowed == nil {
			continue
		}
		checkImports(t, name, allowed, p, standard)
	}
	require.GreaterOrEqual(t, seen, 4, "the packages of the module were listed")
}

func checkImports(t *testing.T, name string, allowed []string, p listed, standard map[string]bool) {
	t.Helper()
	for _, path := range p.Imports {
		ours, inside := strings.CutPrefix(path, module)
		ours = strings.TrimPrefix(ours, "/")
		switch {
		case inside && !slices.Contains(allowed, ours):
			t.Errorf("%s imports %q, allowed are %q", name, ours, allowed)
		case !inside && !standard[path] && standardOnly(name):
			t.Errorf("%s imports %s, allowed is the standard library", name, path)
		}
	}
	if mayCaddy(name) {
		return
	}
	for _, path := range p.Deps {
		if path == caddy || strings.HasPrefix(path, caddy+"/") {
			t.Errorf("%s depends on %s: only the root package, cmd/caddy, internal/block and internal/cli may", name, path)
		}
	}
}

func goList(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Imports,Deps,Standard,Error", module+"/...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// noteSources looks at every source file, so that the result of this test is not
// taken from the cache when an import elsewhere has changed.
func noteSources(t *testing.T, root string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			_, err = os.Stat(path)
		}
		return err
	}))
}
