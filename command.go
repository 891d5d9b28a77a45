package ratelimit

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "status|rules|explain|reset|refresh|top|schema|import|regions [flags]",
		Short: "Shows, explains and steers the rate limits of a running gateway",
		Long: `Shows, explains and steers the rate limits of a running gateway, over Caddy's
admin API. That is expected at '` + caddy.DefaultAdminListen + `'; say otherwise with
--address, or with --config, which reads it from a configuration. With --json a
command prints what the admin API answered, for scripts. Where anything fails,
the exit code is not 0.`,
		CobraFunc: addCommands,
	})
}

// addCommands adds the subcommands.
func addCommands(cmd *cobra.Command) {
	for _, command := range adminCommands() {
		cmd.AddCommand(command.cobra())
	}
	cmd.AddCommand(schemaCommand(), importCommand())
	cmd.AddCommand(regionsCommand())
	refuseUnknown(cmd)
}

// refuseUnknown makes a command that only has others fail where none of them is
// meant: a script must see a word that is misspelt, and cobra would print the help
// and succeed.
func refuseUnknown(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// schemaCommand prints the SQL that makes the table.
func schemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Prints the SQL that makes the table of rules",
		Long:    "Prints the SQL that makes the table of rules, with its optional columns and the trigger that tells the gateways about changes.",
		Example: "  caddy rate-limit schema | psql postgres://127.0.0.1/gateway",
		Args:    cobra.NoArgs,
		RunE:    caddycmd.WrapCommandFuncForCobra(printSchema),
	}
	cmd.Flags().String("table", rulecache.DefaultTable, "name of the table, with its schema if it needs one")
	cmd.Flags().String("channel", rulecache.DefaultChannel, "channel of the notifications")
	cmd.Flags().Bool("regions", false, "print the tables of the regions' shares instead, in the schema of the table")
	return cmd
}

func printSchema(flags caddycmd.Flags) (int, error) {
	options := rulecache.Options{DSN: "postgres://localhost", Table: flags.String("table")}
	if err := options.Validate(); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	settings := rulecache.Settings{Channel: flags.String("channel")}
	if err := settings.Validate(); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	if flags.Bool("regions") {
		fmt.Print(regions.Schema(regionSchema(options.Table)))
		return caddy.ExitCodeSuccess, nil
	}
	fmt.Print(rulecache.Schema(options.Table, settings.Channel))
	return caddy.ExitCodeSuccess, nil
}
