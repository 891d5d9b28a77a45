package cases_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// updatePages in the environment writes what is printed into the pages and golden
// files, in place of comparing.
const updatePages = "RATELIMIT_UPDATE"

const adminPage = "../docs/admin.md"

// block is a fenced block of a page: the lines between its fences.
type block struct {
	language   string
	begin, end int // of the lines
}

func blocksOf(lines []string) (blocks []block) {
	for i := 0; i < len(lines); i++ {
		language, found := strings.CutPrefix(lines[i], "```")
		if !found {
			continue
		}
		begin := i + 1
		for i++; lines[i] != "```"; i++ {
			continue
		}
		blocks = append(blocks, block{language, begin, i})
	}
	return blocks
}

var (
	printedVersion = regexp.MustCompile(`(version"?:? +)("[^"]*"|[^,]*)`)
	printedHex     = regexp.MustCompile(`[0-9a-f]{32}`)
	printedNumber  = regexp.MustCompile(`\d+(\.\d+)?`)
	printedSpan    = regexp.MustCompile(`(#(h|ms|m|s|µs))+`)
	printedSpace   = regexp.MustCompile(`\s+`)
)

// shape is what is printed without what differs each time: numbers, times, hashes
// and the width of columns.
func shape(text string) string {
	text = printedVersion.ReplaceAllString(text, "${1}V")
	text = printedHex.ReplaceAllString(text, "HASH")
	text = printedNumber.ReplaceAllString(text, "#")
	text = printedSpan.ReplaceAllString(text, "SPAN")
	return printedSpace.ReplaceAllString(text, " ")
}

// TestAdminPage runs the commands of docs/admin.md at the gateway of docs/admin.md,
// in their order, and compares what they print with what the page shows.
func TestAdminPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(adminPage)
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	blocks := blocksOf(lines)
	g := pageGateway(t, strings.Join(lines[blocks[0].begin:blocks[0].end], "\n"))
	var page []string
	written := 0
	for _, b := range blocks[1:] {
		require.Equal(t, "console", b.language)
		command, found := strings.CutPrefix(lines[b.begin], "$ ")
		require.True(t, found, lines[b.begin])
		printed := strings.TrimRight(g.Shell(command), "\n")
		shown := strings.Join(lines[b.begin+1:b.end], "\n")
		page = append(append(page, lines[written:b.begin+1]...), printed)
		written = b.end
		if os.Getenv(updatePages) == "" {
			require.Equal(t, shape(shown), shape(printed), "%s, line %d", adminPage, b.begin)
		}
	}
	if os.Getenv(updatePages) != "" {
		writeFile(t, adminPage, strings.Join(append(page, lines[written:]...), "\n"))
	}
}

// pageGateway is the gateway that the page shows, in the state that it tells of.
func pageGateway(t *testing.T, caddyfile string) *gateway.Process {
	t.Helper()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES
		('shop-a', 'create-order', 3, 0.01), ('shop-b', 'create-order', 2000000000, 0.001)`)
	caddyfile = strings.NewReplacer(
		"{\n\trate_limit {", "{\n\tadmin ADMIN\n\tpersist_config off\n\tstorage file_system DIR/storage\n\trate_limit {",
		"redis {env.REDIS_URL}", "redis {env.REDIS_URL} {\ntimeout 5s\n}", ":8080 {", "http://ADDR {",
	).Replace(caddyfile)
	g := gateway.Start(t, caddyfile, "REDIS_URL="+redis.URL(), "RULES_URL="+postgres.URL(database), "GUEST_SECRET=only-for-these-examples")
	gateway.Eventually(t, 10*time.Second, "the rules are known and listened for", func() bool {
		return at(t, g.Asked("GET", "/rate_limit/status"), "rules", "state") == "listening"
	})
	require.Equal(t, 3, g.Passes(6, "shop-a"))
	gateway.Eventually(t, 10*time.Second, "the refusal is not remembered any more", func() bool {
		return at(t, g.Asked("GET", "/rate_limit/explain?tenant=shop-a&route=create-order"), "handlers", 0, "next", "source") == "redis"
	})
	return g
}
