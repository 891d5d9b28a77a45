package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// adminCommand is a command that makes one call of the admin API.
type adminCommand struct {
	name, short, long, example string

	call adminapi.Call // its parameters are flags

	// again is the flag that shows the answer until the command is interrupted: blank,
	// watch or follow. With goOn, each call is for what has come since the one before.
	again string
	goOn  func(query url.Values, body []byte)

	// merge makes one answer of those of several gateways. Where it is nil, one is asked.
	merge func(bodies [][]byte) ([]byte, error)

	// print shows the answer to people.
	print func(w io.Writer, body []byte) error
}

// parameterFlags says what the parameters of the calls are.
func parameterFlags() map[string]string {
	return map[string]string{
		"tenant": "the tenant, as clients send it; ~guest for the guests; - reads it from standard input, as with --stored and --key",
		"stored": "the tenant as rules and keys have it, such as a hash, in place of --tenant and --ip",
		"key":    "the tenant as Redis keys have it, with %XX in it, in place of --tenant and --ip",
		"ip":     "the IP address of a guest",
		"route":  "the route (default: every route)",
		"cost":   "what the request costs (default: what the handler says)",
		"by":     "what to list by: refused, requests (those that ask most, granted or not) or shadow (what would have been refused)",
		"after":  "the number of the last that is known",
		"limit":  "how many to show at most",
		"cursor": "where to go on: what the page before ended with",
	}
}

// adminCommands lists the commands.
func adminCommands() []adminCommand {
	return []adminCommand{
		{
			name: "status", short: "Shows the state of the gateway, its Redis and its rules",
			call: adminapi.StatusCall(), again: "watch", print: printing(printStatus),
		},
		{
			name: "rules", short: "Lists the rules in force",
			example: "  caddy rate-limit rules --tenant shop-a",
			call:    adminapi.RulesCall(), print: printing(printRules),
		},
		{
			name: "explain", short: "Explains which rule applies, and what the next request gets",
			long:    "Tells which rule counts for a tenant on a route, why, what its bucket holds, and what its next request would get. It takes no token.",
			example: "  caddy rate-limit explain --tenant shop-a --route create-order",
			call:    adminapi.ExplainCall(), print: printing(printExplain),
		},
		{
			name: "reset", short: "Refills a tenant's buckets, here and in Redis, and ends its bans",
			example: "  caddy rate-limit reset --tenant shop-a --route create-order\n  caddy rate-limit reset --tenant shop-a",
			call:    adminapi.ResetCall(), print: printing(printReset),
		},
		{
			name: "refresh", short: "Loads the rules from PostgreSQL now",
			call: adminapi.RefreshCall(), print: printing(printRefresh),
		},
		{
			name: "top", short: "Lists the buckets that refused, or were asked, most in the last minute",
			example: "  caddy rate-limit top --by requests --watch",
			call:    adminapi.TopCall(), again: "watch", merge: mergeTops, print: printing(printTop),
		},
		{
			name: "bans", short: "Lists the bans that a gateway has seen",
			long:    "Lists the bans that a gateway, or several, has seen and that hold, the one that lasts longest first. They hold on all gateways; reset ends one.",
			example: "  caddy rate-limit bans --limit 20",
			call:    adminapi.BansCall(), again: "watch", merge: mergeBans, print: printing(printBans),
		},
		{
			name: "events", short: "Lists the last changes of state",
			example: "  caddy rate-limit events --follow",
			call:    adminapi.EventsCall(), again: "follow", goOn: eventsGoOn, print: printing(printEvents),
		},
	}
}

// cobra is the command with its flags.
func (c *adminCommand) cobra() *cobra.Command {
	cmd := &cobra.Command{
		Use: c.name, Short: c.short, Long: c.long, Example: c.example, Args: flagsOnly,
		RunE: caddycmd.WrapCommandFuncForCobra(c.run),
	}
	flags := parameterFlags()
	for _, name := range c.call.Parameters {
		cmd.Flags().String(name, "", flags[name])
	}
	if c.merge == nil {
		cmd.Flags().String("address", "", "Address of the administration API listener (if --config is not used)")
	} else {
		cmd.Flags().StringArray("address", nil, "Address of an administration API listener, as often as there are gateways (if --config is not used)")
	}
	cmd.Flags().StringP("config", "c", "", "Configuration file (if --address is not used)")
	cmd.Flags().StringP("adapter", "a", "", "Name of config adapter to apply (if --config is used)")
	if c.again != "" {
		cmd.Flags().Bool(c.again, false, "go on until the command is interrupted, asking every "+watchInterval.String())
	}
	cmd.Flags().Bool("json", false, "print the answer of the admin API as it is")
	return cmd
}

// run makes the call and prints the answer.
func (c *adminCommand) run(flags caddycmd.Flags) (int, error) {
	addresses, err := c.addresses(flags)
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	query, err := c.query(flags, os.Stdin)
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	if c.again != "" && flags.Bool(c.again) {
		if flags.Bool("json") {
			return caddy.ExitCodeFailedStartup, fmt.Errorf("--%s and --json do not go together: a script asks again by itself", c.again)
		}
		if err := c.watch(addresses, query); err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		return caddy.ExitCodeSuccess, nil
	}
	body, err := c.askAll(addresses, query)
	if err != nil {
		if told := failureBody(err); flags.Bool("json") && told != "" {
			_, _ = fmt.Fprintln(os.Stdout, told) // the error is told in any case
		}
		return caddy.ExitCodeFailedStartup, clearError(err)
	}
	if flags.Bool("json") {
		_, err = os.Stdout.Write(body)
	} else {
		err = c.print(os.Stdout, body)
	}
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("printing the answer: %w", err)
	}
	return caddy.ExitCodeSuccess, nil
}

// addresses are those of the gateways to ask: one, unless the answers can be merged.
func (c *adminCommand) addresses(flags caddycmd.Flags) ([]string, error) {
	named := ""
	if c.merge == nil {
		named = flags.String("address")
	} else if all, err := flags.GetStringArray("address"); err != nil || len(all) > 0 {
		return all, err
	}
	address, err := caddycmd.DetermineAdminAPIAddress(named, nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return nil, fmt.Errorf("finding the address of the admin API: %w", err)
	}
	return []string{address}, nil
}

// askAll makes the call at all addresses. An error names the address that fails.
func (c *adminCommand) askAll(addresses []string, query url.Values) ([]byte, error) {
	bodies := make([][]byte, 0, len(addresses))
	for _, address := range addresses {
		body, err := c.ask(address, query)
		if err != nil {
			return nil, &askError{address, len(addresses) > 1, err}
		}
		bodies = append(bodies, body)
	}
	if len(bodies) == 1 {
		return bodies[0], nil
	}
	return c.merge(bodies)
}

// askError is a call that failed at an address, which is one of several or the only one.
type askError struct {
	address string
	several bool
	err     error
}

func (e *askError) Error() string { return e.err.Error() }

func (e *askError) Unwrap() error { return e.err }

// fromInput in place of a tenant is one that stands on standard input, so that it
// is in no list of processes.
const fromInput = "-"

// query is those parameters that were given.
func (c *adminCommand) query(flags caddycmd.Flags, input io.Reader) (url.Values, error) {
	query := url.Values{}
	for _, name := range c.call.Parameters {
		if !flags.Changed(name) {
			continue
		}
		value := flags.String(name)
		if value == fromInput && slices.Contains([]string{"tenant", "stored", "key"}, name) {
			var err error
			if value, err = readName(input); err != nil {
				return nil, fmt.Errorf("--%s -: %w", name, err)
			}
		}
		query.Set(name, value)
	}
	return query, nil
}

// request is the call's method, URI, header and body. Caddy logs the URI of each
// call, so that a tenant does not stand there.
func (c *adminCommand) request(query url.Values) (method, uri string, header http.Header, body io.Reader) {
	switch {
	case len(query) == 0:
		return c.call.Method, c.call.Path, nil, nil
	case !c.call.NamesTenant():
		return c.call.Method, c.call.Path + "?" + query.Encode(), nil, nil
	}
	method = c.call.Method
	if method == http.MethodGet {
		method = http.MethodPost
	}
	header = http.Header{"Content-Type": {adminapi.Form}}
	return method, c.call.Path, header, strings.NewReader(query.Encode())
}

// answered is what came of a call.
type answered struct {
	body []byte
	err  error
}

// commandTimeout is longer than any call takes.
const commandTimeout = adminapi.RefreshTimeout + 5*time.Second

// ask makes the call, and gives up when no answer comes: Caddy's own client waits
// for ever.
func (c *adminCommand) ask(address string, query url.Values) ([]byte, error) {
	done := make(chan answered, 1)
	go func() {
		body, err := c.exchange(address, query)
		done <- answered{body, err}
	}()
	timeout := time.NewTimer(commandTimeout)
	defer timeout.Stop()
	select {
	case got := <-done:
		return got.body, got.err
	case <-timeout.C:
		return nil, fmt.Errorf("the admin API at %s has not answered within %v", address, commandTimeout)
	}
}

func (c *adminCommand) exchange(address string, query url.Values) ([]byte, error) {
	method, uri, header, body := c.request(query)
	response, err := caddycmd.AdminAPIRequest(address, method, uri, header, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the admin API: %w", err)
	}
	return answer, nil
}

// clearError makes a sentence of what Caddy's client says, and names the address where
// several were asked.
func clearError(err error) error {
	var failed *askError
	if !errors.As(err, &failed) {
		return err
	}
	err = clearAnswer(failed.address, failed.err)
	if failed.several && !strings.Contains(err.Error(), failed.address) {
		return fmt.Errorf("%s: %w", failed.address, err)
	}
	return err
}

// clearAnswer makes a sentence of an error that is known by its text alone.
func clearAnswer(address string, err error) error {
	text := err.Error()
	if strings.HasPrefix(text, "performing request: ") {
		return fmt.Errorf("no Caddy answers at the admin address %s: start it, or say where it is with --address or --config (%w)", address, err)
	}
	_, rest, found := strings.Cut(text, "HTTP ")
	body := failureBody(err)
	var told struct {
		Error string `json:"error"`
	}
	switch {
	case !found:
		return err
	case json.Unmarshal([]byte(body), &told) == nil && told.Error != "":
		return errors.New(told.Error)
	case strings.HasPrefix(rest, "404"):
		return fmt.Errorf("the Caddy at %s does not know this command: it was built without this module, or with an older version", address)
	}
	return err
}

// failureBody is the answer of the admin API that Caddy's client made an error of.
func failureBody(err error) string {
	_, rest, _ := strings.Cut(err.Error(), "HTTP ")
	_, body, _ := strings.Cut(rest, ": ")
	return body
}

// printing reads an answer for a function that shows it.
func printing[T any](show func(*tables, *T)) func(io.Writer, []byte) error {
	return func(w io.Writer, body []byte) error {
		answer := new(T)
		if err := json.Unmarshal(body, answer); err != nil {
			return fmt.Errorf("reading the answer of the admin API: %w", err)
		}
		out := &tables{}
		show(out, answer)
		return out.writeTo(w)
	}
}
