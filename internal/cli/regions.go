package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// regionsCommand holds what an operator does with the regions' shares.
func regionsCommand(expand expander) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "regions",
		Short: "Moves the shares of regions",
	}
	cmd.AddCommand(rebalanceCommand(expand))
	refuseUnknown(cmd)
	return cmd
}

// rebalanceCommand runs the job once.
func rebalanceCommand(expand expander) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Moves the shares of regions toward the demand that they measured",
		Long: `Moves the shares of regions toward the demand that they measured.

What a region is to have more waits until another that is to have less has read
so: run it again, from cron say, or with --wait. It does no harm to run it twice
at once, or beside gateways that do the same.`,
		Example: "  caddy rate-limit regions rebalance --dsn '{env.RULES_URL}' --wait 1m",
		Args:    flagsOnly,
		RunE: caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
			return runRebalance(flags, expand)
		}),
	}
	cmd.Flags().String("dsn", "", "URL of the database; placeholders such as {env.RULES_URL} keep it out of the list of processes")
	cmd.Flags().String("table", rulecache.DefaultTable, "name of the table of rules, whose schema the tables of shares are in")
	cmd.Flags().Duration("every", 0, "do not reckon shares anew where that was done less than this ago")
	cmd.Flags().Duration("wait", 0, "go on until nothing waits any more, for this long at most")
	return cmd
}

func runRebalance(flags caddycmd.Flags, expand expander) (int, error) {
	dsn := flags.String("dsn")
	if dsn == "" {
		return caddy.ExitCodeFailedStartup, errors.New("--dsn: a URL is needed, such as postgres://user@127.0.0.1/gateway")
	}
	if _, err := expand(dsn); err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("--dsn: %w", err)
	}
	table, every, wait := flags.String("table"), flags.Duration("every"), flags.Duration("wait")
	if every < 0 || wait < 0 {
		return caddy.ExitCodeFailedStartup, errors.New("--every and --wait: a time below 0 is not allowed")
	}
	if err := (rulecache.Options{DSN: dsn, Expand: expand, Table: table}).Validate(); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	tables, err := regions.NewTables(regions.Options{DSN: dsn, Expand: expand, Schema: regions.SchemaOf(table)})
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	defer tables.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait+rebalanceTimeout)
	defer cancel()
	r := rebalancing{tables: tables, every: every, until: time.Now().Add(wait), out: os.Stdout}
	if err := r.run(ctx); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

const (
	// rebalanceTimeout bounds one run of the job from the command line.
	rebalanceTimeout = 30 * time.Second
	// rebalancePause is between two of them.
	rebalancePause = time.Second
)

// rebalancing is one call of the command.
type rebalancing struct {
	tables *regions.Tables
	every  time.Duration
	until  time.Time
	out    io.Writer
}

// run runs the job until nothing waits or the time is up.
func (r *rebalancing) run(ctx context.Context) error {
	for {
		made, err := regions.Job{Books: r.tables, Every: r.every}.Run(ctx)
		if err != nil {
			return err
		}
		if made == nil {
			fmt.Fprintln(r.out, "nothing to do, or another job is at it")
			return nil
		}
		r.print(made)
		if made.Waiting == 0 || !time.Now().Before(r.until) {
			return nil
		}
		r.every = max(r.every, time.Hour) // the demand was looked at
		time.Sleep(rebalancePause)
	}
}

// print tells what was changed. A tenant may be a secret, and is shown as it is
// in Redis and in the table.
func (r *rebalancing) print(made *regions.Changes) {
	table := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for i := range made.Limits {
		row := &made.Limits[i]
		for _, p := range row.Portions {
			fmt.Fprintf(table, "%s\t%s\tshare %.4f\ton its way to %.4f\theld %.4f\n", limitName(row.Key), p.Region, p.Share.Fraction(), p.Target.Fraction(), p.Held.Fraction())
		}
	}
	for _, key := range made.Deleted {
		fmt.Fprintf(table, "%s\tas all others\n", limitName(key))
	}
	_ = table.Flush() // to the terminal
	fmt.Fprintf(r.out, "%d limits changed, %d wait for gateways to read\n", len(made.Limits)+len(made.Deleted), made.Waiting)
}

func limitName(key limit.Key) string {
	if key == regions.Everything() {
		return "all limits"
	}
	return key.Tenant + " " + key.Route
}
