package servertest

import (
	"os"
	"testing"
)

// Thorough tells whether tests run in full, as `make test-all` runs them, with
// RATELIMIT_TEST=all. Where they do not, the test logs what it leaves out, and
// scripts/testrun lists it at the end.
func Thorough(t testing.TB, leavesOut string) bool {
	t.Helper()
	switch mode := os.Getenv("RATELIMIT_TEST"); mode {
	case "all":
		return true
	case "":
		t.Log("left out: " + leavesOut)
	default:
		t.Fatalf("RATELIMIT_TEST=%s: allowed is all, or nothing", mode)
	}
	return false
}
