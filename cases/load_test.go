package cases_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// idle is a gateway that answers, to load configurations into.
func idle(t *testing.T, env ...string) *gateway.Process {
	t.Helper()
	return gateway.Start(t, gateway.Site("", "respond ok"), env...)
}

func TestL7TwoLimitsOneName(t *testing.T) {
	t.Parallel()
	g := idle(t)
	two := func(global, one, other string) string {
		return gateway.Site(global, "route /a {\nrate_limit a {\n"+one+"\n}\n}\nroute /b {\nrate_limit a {\n"+other+"\n}\n}")
	}
	for _, test := range []struct{ global, one, other, want string }{
		{"", "limit 5/s", "limit 10/s", "two directives limit one route differently"},
		{"", "limit 5/s", "limit 5/s\nalgorithm sliding_window_log", "two directives limit one route differently"},
		{"", "limit 5/s", "limit 5/s\nguest allow", ""},
		{"rate_limit {\ndefault 7/s\n}", "limit 5/s", "guest allow", "two handlers limit one route differently"},
		{"rate_limit {\nrule * a 7/s\n}", "limit 5/s", "guest allow", ""},
	} {
		warnings := g.Warns(two(test.global, test.one, test.other))
		if test.want == "" {
			require.NotContains(t, warnings, "differently", test)
			continue
		}
		require.Contains(t, warnings, test.want, test)
		line := lineWith(warnings, "two directives")
		if line != "" {
			require.Contains(t, line, `"route":"a"`)
			require.Regexp(t, `"first":"[^"]*:10"`, line)
			require.Regexp(t, `"second":"[^"]*:15"`, line)
		}
		require.Equal(t, 1, strings.Count(warnings, "two handlers"), warnings)
	}
}

func TestL7WordsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	g := idle(t)
	for _, test := range []struct{ global, directive, want string }{
		{"", "limit 1/s\nunknown deny", "unknown: with deny each request is answered with 401"},
		{"rule * a 1/s\nrule ~guest a 1/s", "unknown deny", "unknown: with deny each request is answered with 401"},
		{"", "limit 1/s\nunknown guest", "unknown: with guest, and `guest deny`, each request is answered with 401"},
		{"", "limit 1/s\nipv4_prefix 24", "ipv4_prefix: it is for guests that are limited by their address: write `guest ip`"},
		{"", "limit 1/s\nipv6_prefix 56\nguest allow", "ipv6_prefix: it is for guests"},
		{"guest_secret fifteen-bytes--", "limit 1/s", "guest_secret: it is 15 bytes long"},
		{"guest_secret {env.SHORT}", "limit 1/s", "guest_secret: it is 5 bytes long"},
	} {
		caddyfile := gateway.Site("rate_limit {\n"+test.global+"\n}", "rate_limit a {\n"+test.directive+"\n}")
		text := gateway.New(t, "SHORT=short").Validates(caddyfile)
		require.Contains(t, text, test.want, test)
		require.NotContains(t, text, "fifteen-bytes", "the secret is not shown")
	}
	require.Contains(t, g.Warns(gateway.Site("rate_limit {\nrule known a 1/s\n}", "rate_limit a {\nlimit 1/s\nunknown guest\nguest allow\n}")),
		"a client that makes up a key is not limited at all")
	require.Contains(t, g.Warns(gateway.Site("", "rate_limit a {\nlimit 1/s\nunknown guest\nguest ip\n}")), "every client is a guest")
	for _, fine := range []string{"unknown deny", "unknown guest", "unknown guest\nguest ip\nipv4_prefix 24"} {
		require.NotContains(t, g.Warns(gateway.Site("rate_limit {\nrule known a 1/s\n}", "rate_limit a {\nlimit 1/s\n"+fine+"\n}")), "guest", fine)
	}
}

func TestL8RulesForNobody(t *testing.T) {
	t.Parallel()
	_, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		VALUES ('t1', 'create-order', 7, 1), ('t1', 'creat-order', 8, 1), ('t1', '*', 9, 1)`)
	g := gateway.Start(t, gateway.Site("rate_limit {\nrules "+postgres.URL(database)+"\nrule shop-a craete-order 10/s\nrule * * 5/s\n}", gateway.Answers("rate_limit create-order")))
	line := lineWith(g.Log(), "a static rule names a route that no rate_limit has")
	require.Contains(t, line, `"route":"craete-order"`)
	require.Contains(t, line, `"did_you_mean":"create-order"`)
	gateway.Eventually(t, 10e9, "the rules are read", func() bool { return g.Get("/", "t1").Field("X-RateLimit-Limit") == 7 })
	require.Contains(t, g.AdminGet("/rate_limit/status"), `"rules_for_no_route": 2`)
	out, err := g.Command("rate-limit", "status", "--address", g.Admin).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "2 rules for no route")
	out, err = g.Command("rate-limit", "rules", "--address", g.Admin).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.SplitSeq(string(out), "\n") {
		marked := strings.Contains(line, "creat-order") || strings.Contains(line, "craete-order")
		require.Equal(t, marked, strings.Contains(line, "no such route here"), line)
	}
}

// TestL9Slips: each error has the line, what is allowed, and what was probably meant.
func TestL9Slips(t *testing.T) {
	t.Parallel()
	global := func(line string) string {
		return "{\n\trate_limit {\n" + line + "\n\t}\n}\nhttp://localhost:8080 {\n\trespond ok\n}"
	}
	directive := func(line string) string {
		return "{\n}\nhttp://localhost:8080 {\n\trate_limit api orders {\n" + line + "\n\t}\n}"
	}
	for _, test := range []struct {
		caddyfile string
		want      []string
	}{
		{global("redis 127.0.0.1:6379"), []string{"it must begin with redis://, rediss:// or unix://, such as redis://127.0.0.1:6379/0", ":3"}},
		{global("redis localhost:6379"), []string{"it must begin with redis://", ":3"}},
		{global("redis redis://user:p@ss/word@host"), []string{"user or password holds a character that must be written as %XX: @ as %40, / as %2F", ":3"}},
		{global("redis redis://user:p#ss@host"), []string{"# as %23", ":3"}},
		{global("redis redsi://host"), []string{"its scheme must be redis, rediss or unix; did you mean redis?", ":3"}},
		{global("rules 127.0.0.1:5432/gateway"), []string{"such as postgres://user@127.0.0.1/gateway", ":3"}},
		{global("rules postgres://user:p@ss/word@host/gateway"), []string{"@ as %40, / as %2F", ":3"}},
		{global("rules postgres://host/gateway?ssl_mode=require"), []string{"did you mean sslmode?", ":3"}},
		{global("rule shop-a 10/s"), []string{"stands in the place of the route: for all, write `rule shop-a * 10/s`", ":3"}},
		{global("rule 10/s"), []string{"stands in the place of the tenant: for all, write `rule * * 10/s`", ":3"}},
		{global("rule shop-a"), []string{"such as `rule shop-a create-order 100/s`", ":3"}},
		{global("rule shop-a api 10/s mod shadow"), []string{"allowed are burst, algorithm, mode, prefetch, shards, concurrent; did you mean mode?", ":3"}},
		{global("rule shop-a api 10/s mode shadwo"), []string{"allowed are enforce, shadow, unlimited, deny; did you mean shadow?", ":3"}},
		{global("instances many"), []string{`"many" is not a whole number: allowed are 1 to 100000, and auto with the number`, ":3"}},
		{global("falback deny"), []string{"allowed here are default, fallback", "did you mean fallback?", ":3"}},
		{global("fallback dney"), []string{"allowed are local, allow, deny; did you mean deny?", ":3"}},
		{directive("limit 10/s apii"), []string{`"apii" is not a route of this directive: allowed are api, orders; did you mean api?`, ":5"}},
		{directive("limit 10/s on apii"), []string{"did you mean api?", ":5"}},
		{directive("limit 10/s on"), []string{"on needs a route of this directive: allowed are api, orders", ":5"}},
		{directive("limit 10/s brust 20"), []string{"did you mean burst?", ":5"}},
		{directive("limt 10/s"), []string{"did you mean limit?", ":5"}},
		{directive("guest alow"), []string{"allowed are deny, allow, ip; did you mean allow?", ":5"}},
		{directive("algorithm sliding_window_counte"), []string{"did you mean sliding_window_counter?", ":5"}},
		{directive("tenant {hedaer.X-Api-Key}"), []string{"no placeholder is called {hedaer.X-Api-Key}; did you mean {header.X-Api-Key}?", ":5"}},
		{directive("tenant {http.reqeust.header.X}"), []string{"did you mean {http.request.header.X}?", ":5"}},
		{directive("tenant {http.request.haeder.X}"), []string{"did you mean {http.request.header.X}?", ":5"}},
		{directive("tenant {remote.host}"), []string{"{remote_host}", ":5"}},
		{directive("cost {qeury.n}"), []string{"did you mean {query.n}?", ":5"}},
	} {
		_, err := gateway.Adapt(test.caddyfile)
		for _, want := range test.want {
			require.ErrorContains(t, err, want, test.caddyfile)
		}
		for _, secret := range []string{"p@ss", "word@", "p#ss"} {
			require.NotContains(t, err.Error(), secret)
		}
	}
	require.Contains(t, idle(t).Warns(gateway.Site("", "rate_limit {\nlimit 1/s\ntenant {remote_hots}\n}")), `"did_you_mean":"{remote_host}"`,
		"map can make such a placeholder, so it is a warning")
}

func TestOnRoute(t *testing.T) {
	t.Parallel()
	config, err := gateway.Adapt("http://localhost:8080 {\nrate_limit a on {\nlimit 1/s on a\nlimit 2/s on on\n}\n}")
	require.NoError(t, err)
	require.JSONEq(t, `{"handler":"rate_limit","routes":["a","on"],"limits":[{"route":"a","capacity":1,"refill_per_second":1},{"route":"on","capacity":2,"refill_per_second":2}]}`, gateway.HandlerOf(t, config))
	config, err = gateway.Adapt("http://localhost:8080 {\nrate_limit on {\nlimit 1/s burst 5 on\n}\n}")
	require.NoError(t, err)
	require.JSONEq(t, `{"handler":"rate_limit","routes":["on"],"limits":[{"route":"on","capacity":5,"refill_per_second":1}]}`, gateway.HandlerOf(t, config))
	_, err = gateway.Adapt("http://localhost:8080 {\nrate_limit a b {\nlimit 1/s on a b\n}\n}")
	require.ErrorContains(t, err, `"b" stands after the route`)
}

// TestK16WhiteSpace: a value of the environment mostly ends with a newline.
func TestK16WhiteSpace(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	global := "rate_limit {\nredis {env.RL_URL} {\nkey_prefix {env.RL_PREFIX}\ntimeout 5s\n}\nguest_secret {env.RL_SECRET}\n}"
	spaced := []string{"RL_URL= " + redis.URL() + "\n", "RL_PREFIX=gate\r\n", "RL_SECRET=0123456789abcdef\n"}
	config := gateway.Site(global, gateway.Answers("rate_limit a {\n"+slow(3)+"\nguest ip\n}"))
	g := gateway.Start(t, config, spaced...)
	first := g.Get("/", "")
	require.Equal(t, []int{200, 2}, []int{first.Status, first.Remaining()})
	plain := gateway.Start(t, config, "RL_URL="+redis.URL(), "RL_PREFIX=gate", "RL_SECRET=0123456789abcdef")
	require.Equal(t, 1, plain.Get("/", "").Remaining(), "the same bucket under the same hash")
	require.Contains(t, gateway.New(t, "RL_URL= \n", "RL_PREFIX=gate", "RL_SECRET=0123456789abcdef").Validates(config), "has no value: {env.RL_URL}")
}

func TestK17Unclear(t *testing.T) {
	t.Parallel()
	g := idle(t)
	const apart = "nothing stands between the placeholders"
	_, err := gateway.Adapt("http://localhost:8080 {\nrate_limit {\nlimit 1/s\ntenant {header.A}{header.B}\n}\n}")
	require.ErrorContains(t, err, apart)
	require.ErrorContains(t, err, "write a separator between them, such as {http.request.header.A}|{http.request.header.B}")
	require.ErrorContains(t, err, ":4")
	warnings := g.Warns(gateway.Site("", "rate_limit {\nzone z {\nkey {header.A}{header.B}\nwindow 1s\nevents 1\n}\n}"))
	require.Contains(t, lineWith(warnings, apart), "{http.request.header.A}|{http.request.header.B}")
	require.Contains(t, g.Warns(gateway.Site("", "rate_limit {\nlimit 1/s\ntenant {header.Authorization}\n}")), "the whole header Authorization is the tenant")
	require.NotContains(t, g.Warns(gateway.Site("", "rate_limit {\nlimit 1/s\ntenant {header.A}-{header.B}\n}")), apart)

	warnings = g.Warns(gateway.Site("", "rate_limit {\nlimit 1/s\ncost {list_costs}\n}"))
	require.Contains(t, warnings, `"option":"cost","placeholder":"{list_costs}"`)
	status, text := g.Post("/load", "application/json", g.Fill(`{"admin":{"listen":"ADMIN"},"apps":{"http":{"servers":{"a":{"listen":["ADDR"],"routes":[{"handle":[
		{"handler":"rate_limit","cost":"{header.X}","limits":[{"capacity":1,"refill_per_second":1}]}]}]}}}}}`))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "cost: {header.X} is a shorthand of the Caddyfile")
}

// TestK17BeforeAuthentication: rate_limit stands before basic_auth, and nothing
// says so until the first request comes.
func TestK17BeforeAuthentication(t *testing.T) {
	t.Parallel()
	const told = "the first request was limited before it was authenticated"
	const hash = "$2b$04$abcdefghijklmnopqrstuuPp7HPfoAs8I2dCQCQ/fW7zEJv8I8C8e" // of "x", quickly checked
	auth := "basic_auth {\nu " + hash + "\n}\n"
	for _, limited := range []string{
		"rate_limit a {\nlimit 9/s\ntenant {http.auth.user.id}\nguest allow\n}\n",
		"rate_limit {\nzone a {\nkey {http.auth.user.id}\nevents 9\nwindow 1s\n}\n}\n",
	} {
		before := gateway.Start(t, gateway.Site("", limited+auth+"respond ok"))
		require.NotContains(t, before.Log(), told)
		for range 3 {
			before.Get("/", "")
		}
		require.Equal(t, 1, strings.Count(before.Log(), told), limited)
		require.Contains(t, lineWith(before.Log(), told), `"placeholder":"{http.auth.user.id}"`)
		after := gateway.Start(t, gateway.Site("", "route {\n"+auth+limited+"respond ok\n}"))
		require.Equal(t, 200, after.Send(http.MethodGet, "/", http.Header{"Authorization": {"Basic dTp4"}}).Status)
		require.NotContains(t, after.Log(), told)
	}
}

// TestK12Twice: which of two values counts must not depend on who reads them.
func TestK12Twice(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers(`
		route /query {
			rate_limit q {
				tenant {query.api_key}
				`+slow(9)+`
			}
		}
		route /cookie {
			rate_limit c {
				tenant {cookie.sid}
				`+slow(9)+`
			}
		}`)))
	require.Equal(t, 200, g.Send(http.MethodGet, "/query?api_key=real&x=1", nil).Status)
	require.Equal(t, 400, g.Send(http.MethodGet, "/query?api_key=real&api_key=x", nil).Status)
	require.Equal(t, 400, g.Send(http.MethodGet, "/query?api_key=real&%61pi_key=x", nil).Status, "however it is spelt")
	require.Equal(t, 200, g.Send(http.MethodGet, "/cookie", http.Header{"Cookie": {"sid=real; other=x"}}).Status)
	for _, twice := range [][]string{{"SID=1; sid=real"}, {"sid=real; sid=real"}, {"sid=1", "sid=2"}} {
		require.Equal(t, 400, g.Send(http.MethodGet, "/cookie", http.Header{"Cookie": twice}).Status, twice)
	}
}
