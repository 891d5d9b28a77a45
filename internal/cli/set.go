package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// setCommand writes one rule into the table.
func setCommand(expand expander) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set --dsn <url> [--table <name>] [--dry-run] <tenant>|- <route> <rate> [burst <n>] [algorithm <word>] [mode <word>]",
		Short: "Writes one rule into the table of rules",
		Long: `Writes one rule into the PostgreSQL table that the gateways read, which follow at
once. The rule is checked as in a file that is imported, and written as the
Caddyfile writes it. What is not named stays as the row has it, but for burst, which
is the number of the rate. - in place of the tenant reads it from standard input.`,
		Example: "  caddy rate-limit set --dsn '{env.RULES_URL}' shop-b create-order 20/s burst 40\n" +
			"  caddy rate-limit set --dsn '{env.RULES_URL}' shop-b create-order 20/s mode deny",
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, words []string) error {
			return caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
				ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				if err := setRule(ctx, flags, words, expand); err != nil {
					return caddy.ExitCodeFailedStartup, err
				}
				return caddy.ExitCodeSuccess, nil
			})(cmd, words)
		},
	}
	cmd.Flags().String("dsn", "", "URL of the database; {env.NAME} and {file./path} in it are replaced, and keep a password out of the list of processes")
	cmd.Flags().String("table", rulecache.DefaultTable, "name of the table, with its schema if it needs one")
	cmd.Flags().Bool("dry-run", false, "only show what would change")
	return cmd
}

// setRule reads the words and writes the rule.
func setRule(ctx context.Context, flags caddycmd.Flags, words []string, expand expander) error {
	options, err := tableOptions(flags, expand)
	if err != nil {
		return err
	}
	if words[0] == fromInput {
		if words[0], err = readName(os.Stdin); err != nil {
			return err
		}
	}
	row, err := ruleRow(words)
	if err != nil {
		return err
	}
	file, err := rulecache.ReadImport(bytes.NewReader(row), rulecache.FormatJSONLines, nil)
	if bad := (*rulecache.ImportError)(nil); errors.As(err, &bad) {
		return errors.New(bad.Lines[0].Reason) // there is one line, which nobody has seen
	}
	if err != nil {
		return err
	}
	result, err := rulecache.Import(ctx, file, rulecache.ImportOptions{Options: options, Apply: !flags.Bool("dry-run")})
	if err != nil {
		return err
	}
	warnOfManyRules(os.Stderr, result)
	printSet(os.Stdout, result)
	return nil
}

// readName reads a tenant that is in no list of processes.
func readName(input io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(input, adminapi.MaxForm))
	name := strings.TrimRight(string(text), "\r\n")
	if err != nil || name == "" {
		return "", fmt.Errorf("standard input has no name: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return name, nil
}

// ruleRow is the rule that the words say, as a line of a file of rules: tenant, route,
// rate, and pairs of a name and a value.
func ruleRow(words []string) ([]byte, error) {
	capacity, refill, err := limit.ParseRate(words[2])
	if err != nil {
		return nil, err
	}
	row := map[string]any{"tenant_id": words[0], "route_id": words[1], "capacity": capacity, "refill_per_second": refill}
	for rest := words[3:]; len(rest) > 0; rest = rest[2:] {
		column := map[string]string{"burst": "capacity", "algorithm": "algorithm", "mode": "mode"}[rest[0]]
		switch {
		case column == "":
			return nil, limit.UnknownWord("word", rest[0], "burst", "algorithm", "mode")
		case len(rest) == 1:
			return nil, fmt.Errorf("%s needs a value", rest[0])
		case column != "capacity":
			row[column] = rest[1]
			continue
		}
		if row[column], err = strconv.ParseInt(rest[1], 10, 64); err != nil {
			return nil, fmt.Errorf("burst %.64q is not allowed: allowed is a whole number from 1 to %d", rest[1], int64(limit.MaxCapacity))
		}
	}
	line, err := json.Marshal(row)
	if err != nil {
		return nil, fmt.Errorf("writing the rule: %w", err)
	}
	return line, nil
}

// printSet shows what has changed.
func printSet(out io.Writer, result *rulecache.ImportResult) {
	for _, change := range result.Changes {
		fmt.Fprintf(out, "%s %s %s %s\n", changeSign(change.Kind), shownName(change.Pair.Tenant), shownName(change.Pair.Route), shownValues(change))
	}
	switch {
	case result.Differences() == 0:
		fmt.Fprintln(out, "nothing to do")
	case result.Applied:
		fmt.Fprintln(out, "written")
	default:
		fmt.Fprintln(out, "nothing was written: run it again without --dry-run")
	}
}
