package cases_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// changing is a gateway whose rules are in PostgreSQL, behind a proxy.
type changing struct {
	*gateway.Process
	proxy *servertest.Proxy
	exec  func(sql string)
}

func startChanging(t *testing.T, directive string) *changing {
	t.Helper()
	redis, postgres, database := stores(t)
	address, err := url.Parse(postgres.URL(database))
	require.NoError(t, err)
	proxy := servertest.NewProxy(t, address.Host)
	global := "rate_limit {\nredis " + redis.URL() + " {\ntimeout 5s\n}\nrules " + servertest.PostgresURL(proxy.Addr(), database) +
		" {\nrefresh 1s\n}\ndefault 1/1000s burst 77\n}"
	return &changing{
		gateway.Start(t, gateway.Site(global, gateway.Answers(directive))), proxy,
		func(sql string) { postgres.ExecIn(t, database, sql) },
	}
}

// refreshed loads the rules now, and returns the status of the call.
func (c *changing) refreshed() int {
	status, _ := c.Post("/rate_limit/rules/refresh", "application/json", "")
	return status
}

// become changes the one rule and waits until it is in force.
func (c *changing) become(t *testing.T, values string) {
	t.Helper()
	c.exec("INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', " + values +
		") ON CONFLICT (tenant_id, route_id) DO UPDATE SET capacity = excluded.capacity, refill_per_second = excluded.refill_per_second")
	gateway.Eventually(t, 20*time.Second, "the rule "+values, func() bool { return c.refreshed() == http.StatusOK })
}

// asked sends n requests and returns how many passed; each tells the limit, and
// never more than it is left.
func (c *changing) asked(t *testing.T, n, limit int) (passed int) {
	t.Helper()
	for range n {
		got := c.Get("/", "t1")
		require.Contains(t, []int{200, 429}, got.Status)
		require.Equal(t, limit, got.Field("X-RateLimit-Limit"))
		require.LessOrEqual(t, got.Remaining(), limit)
		if got.Status == 200 {
			passed++
		}
	}
	return passed
}

// TestA11CapacityLowered lowers and raises a capacity in the table.
func TestA11CapacityLowered(t *testing.T) {
	t.Parallel()
	c := startChanging(t, "rate_limit a")
	c.become(t, "100, 0.001")
	require.Equal(t, 1, c.asked(t, 1, 100))
	c.become(t, "10, 0.001")
	first := c.Get("/", "t1")
	require.Equal(t, []int{200, 10, 9}, []int{first.Status, first.Field("X-RateLimit-Limit"), first.Remaining()})
	require.Equal(t, 9, c.asked(t, 11, 10))
	c.become(t, "50, 0.001")
	require.Equal(t, 0, c.asked(t, 1, 50))
}

// TestR2ErrorsAreNotEmpty takes the table away in several ways, after which a
// drained tenant is still refused by its rule, and then empties it.
func TestR2ErrorsAreNotEmpty(t *testing.T) {
	t.Parallel()
	c := startChanging(t, "rate_limit a")
	c.become(t, "2, 0.001")
	require.Equal(t, 2, c.asked(t, 3, 2))
	for _, fault := range []struct {
		name       string
		take, give func()
	}{
		{
			"refused",
			func() { c.proxy.Set(t, servertest.Fault{Refuse: true}) },
			func() { c.proxy.Set(t, servertest.Fault{}) },
		},
		{
			"another name",
			func() { c.exec("ALTER TABLE rate_limit_rule RENAME TO elsewhere") },
			func() { c.exec("ALTER TABLE elsewhere RENAME TO rate_limit_rule") },
		},
		{
			"a column less",
			func() { c.exec("ALTER TABLE rate_limit_rule RENAME capacity TO size") },
			func() { c.exec("ALTER TABLE rate_limit_rule RENAME size TO capacity") },
		},
	} {
		fault.take()
		gateway.Eventually(t, 20*time.Second, fault.name, func() bool { return c.refreshed() != http.StatusOK })
		require.Equal(t, 0, c.asked(t, 3, 2), fault.name)
		fault.give()
		gateway.Eventually(t, 20*time.Second, fault.name+" no more", func() bool { return c.refreshed() == http.StatusOK })
		require.Equal(t, 0, c.asked(t, 1, 2), fault.name)
	}
	c.exec("DELETE FROM rate_limit_rule")
	gateway.Eventually(t, 20*time.Second, "really empty", func() bool { return c.Get("/", "t1").Field("X-RateLimit-Limit") == 77 })
}
