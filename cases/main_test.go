// Package cases_test tries the module from outside: real gateways as processes, real
// Redis and PostgreSQL. A file is a theme, a test bears the name of its case.
package cases_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

func TestMain(m *testing.M) { gateway.Main(m) }

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
