package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// adminCommand is a command that makes one call of the admin API.
type adminCommand struct {
	name, short, long, example string

	method, path string
	flags        []string // of parameterFlags, each a parameter of the call

	// print shows the answer to people.
	print func(w io.Writer, body []byte) error
}

// parameterFlags say what the parameters of the calls are.
var parameterFlags = map[string]string{
	"tenant": "the tenant, as clients send it; ~guest for the guests",
	"stored": "the tenant as rules and keys have it, such as a hash, in place of --tenant and --ip",
	"key":    "the tenant as Redis keys have it, with %XX in it, in place of --tenant and --ip",
	"ip":     "the IP address of a guest",
	"route":  "the route",
	"cost":   "what the request costs (default: what the handler says)",
	"limit":  "how many to show at most",
	"cursor": "where to go on: what the page before ended with",
}

// adminCommands lists the commands.
func adminCommands() []adminCommand {
	return []adminCommand{
		{
			name: "status", short: "Shows how the gateway, its Redis and its rules fare",
			method: http.MethodGet, path: statusPath, print: printing(printStatus),
		},
		{
			name: "rules", short: "Lists the rules in force",
			example: "  caddy rate-limit rules --tenant shop-a",
			method:  http.MethodGet, path: rulesPath, flags: []string{"tenant", "route", "limit", "cursor"}, print: printing(printRules),
		},
		{
			name: "explain", short: "Tells which rule counts, why, and what the next request gets",
			long:    "Tells which rule counts for a tenant on a route, why, what its bucket holds, and what its next request would get. It takes no token.",
			example: "  caddy rate-limit explain --tenant shop-a --route create-order",
			method:  http.MethodGet, path: explainPath, flags: []string{"tenant", "stored", "key", "ip", "route", "cost"}, print: printing(printExplain),
		},
		{
			name: "reset", short: "Makes a bucket full again, here and in Redis",
			example: "  caddy rate-limit reset --tenant shop-a --route create-order",
			method:  http.MethodDelete, path: bucketPath, flags: []string{"tenant", "stored", "key", "ip", "route"}, print: printing(printReset),
		},
		{
			name: "refresh", short: "Loads the rules from PostgreSQL now",
			method: http.MethodPost, path: refreshPath, print: printing(printRefresh),
		},
		{
			name: "top", short: "Lists the buckets that refused most in the last minute",
			method: http.MethodGet, path: topPath, flags: []string{"limit"}, print: printing(printTop),
		},
	}
}

// cobra is the command with its flags.
func (c *adminCommand) cobra() *cobra.Command {
	cmd := &cobra.Command{
		Use: c.name, Short: c.short, Long: c.long, Example: c.example, Args: cobra.NoArgs,
		RunE: caddycmd.WrapCommandFuncForCobra(c.run),
	}
	for _, name := range c.flags {
		cmd.Flags().String(name, "", parameterFlags[name])
	}
	cmd.Flags().String("address", "", "Address of the administration API listener (if --config is not used)")
	cmd.Flags().StringP("config", "c", "", "Configuration file (if --address is not used)")
	cmd.Flags().StringP("adapter", "a", "", "Name of config adapter to apply (if --config is used)")
	cmd.Flags().Bool("json", false, "print the answer of the admin API as it is")
	return cmd
}

// run makes the call and prints the answer.
func (c *adminCommand) run(flags caddycmd.Flags) (int, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(flags.String("address"), nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("finding the address of the admin API: %w", err)
	}
	body, err := c.ask(address, c.uri(flags))
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
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

// uri is the call with those parameters that were given.
func (c *adminCommand) uri(flags caddycmd.Flags) string {
	query := url.Values{}
	for _, name := range c.flags {
		if flags.Changed(name) {
			query.Set(name, flags.String(name))
		}
	}
	if len(query) == 0 {
		return c.path
	}
	return c.path + "?" + query.Encode()
}

// answered is what came of a call.
type answered struct {
	body []byte
	err  error
}

// commandTimeout is longer than any call takes.
const commandTimeout = refreshTimeout + 5*time.Second

// ask makes the call, and gives up when no answer comes: Caddy's own client waits
// for ever.
func (c *adminCommand) ask(address, uri string) ([]byte, error) {
	done := make(chan answered, 1)
	go func() {
		body, err := c.exchange(address, uri)
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

func (c *adminCommand) exchange(address, uri string) ([]byte, error) {
	response, err := caddycmd.AdminAPIRequest(address, c.method, uri, nil, nil)
	if err != nil {
		return nil, clearError(address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the admin API: %w", err)
	}
	return body, nil
}

// clearError makes a sentence of what Caddy's client says, which is known by its
// text alone.
func clearError(address string, err error) error {
	text := err.Error()
	if strings.HasPrefix(text, "performing request: ") {
		return fmt.Errorf("no Caddy answers at the admin address %s: start it, or say where it is with --address or --config (%w)", address, err)
	}
	_, rest, found := strings.Cut(text, "HTTP ")
	_, body, separated := strings.Cut(rest, ": ")
	var told struct {
		Error string `json:"error"`
	}
	switch {
	case !found || !separated:
		return err
	case json.Unmarshal([]byte(body), &told) == nil && told.Error != "":
		return errors.New(told.Error)
	case strings.HasPrefix(rest, "404"):
		return fmt.Errorf("the Caddy at %s does not know this command: it was built without this module, or with an older version", address)
	}
	return err
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
