package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// earlier is an earlier commit of this module, in a worktree of its own.
type earlier struct {
	commit string // short
	folder string
}

// checkOut checks a commit out into the folder dir/earlier.
func checkOut(ctx context.Context, revision, dir string) (*earlier, error) {
	commit, err := git(ctx, "rev-parse", "--verify", "--short", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("finding the commit %q: %w", revision, err)
	}
	folder := filepath.Join(dir, "earlier")
	if _, err := git(ctx, "worktree", "add", "--detach", folder, commit); err != nil {
		return nil, fmt.Errorf("checking out %s: %w", commit, err)
	}
	return &earlier{commit, folder}, nil
}

// build makes the Caddy of that commit. It is the command of today, in the module
// of today, but for this rate limiter: so that all else has the same version.
func (e *earlier) build(ctx context.Context, dir string) error {
	module := filepath.Join(dir, "earlier.mod")
	for from, to := range map[string]string{"go.mod": module, "go.sum": filepath.Join(dir, "earlier.sum")} {
		text, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("reading the versions to build with: %w", err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil { //nolint:gosec // in the folder of this run
			return fmt.Errorf("writing the versions to build with: %w", err)
		}
	}
	replace := "-replace=github.com/caddygate/ratelimit=" + e.folder
	if out, err := exec.CommandContext(ctx, "go", "mod", "edit", replace, module).CombinedOutput(); err != nil {
		return fmt.Errorf("naming the commit %s in go.mod: %w\n%s", e.commit, err, out)
	}
	flags := append(buildFlags(), "-mod=mod", "-modfile="+module, "-o", filepath.Join(dir, buildEarlier), "./cmd/"+buildOurs)
	if out, err := exec.CommandContext(ctx, "go", flags...).CombinedOutput(); err != nil {
		return fmt.Errorf("building the commit %s: %w\n%s", e.commit, err, out)
	}
	return nil
}

// remove removes the worktree, also where the run was interrupted.
func (e *earlier) remove() {
	if out, err := git(context.Background(), "worktree", "remove", "--force", e.folder); err != nil {
		say("removing the worktree %s: %v\n%s", e.folder, err, out)
	}
}

// git runs it, and returns what it says.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("running git: %w: %s", err, text)
	}
	return text, nil
}
