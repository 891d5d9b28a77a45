// Package cli is `caddy rate-limit …`: the commands of operators. Open command.go
// first, which lists them; admin.go makes the calls of the admin API.
package cli

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// Command is `caddy rate-limit`. Expand replaces the placeholders in the address of a
// database; its errors hold nothing else of it.
func Command(expand func(template string) (string, error)) caddycmd.Command {
	return caddycmd.Command{
		Name:  "rate-limit",
		Usage: "page|status|rules|explain|reset|refresh|top|bans|events|set|schema|import|regions [flags]",
		Short: "Shows, explains and steers the rate limits of a running gateway",
		Long: `Shows, explains and steers the rate limits of a running gateway, over Caddy's
admin API. That is expected at '` + caddy.DefaultAdminListen + `'; say otherwise with
--address, or with --config, which reads it from a configuration. With --json a
command prints what the admin API answered, for scripts. Where anything fails,
the exit code is not 0.`,
		CobraFunc: func(cmd *cobra.Command) {
			for _, command := range adminCommands() {
				cmd.AddCommand(command.cobra())
			}
			cmd.AddCommand(pageCommand(), schemaCommand(), setCommand(expand), importCommand(expand), regionsCommand(expand))
			refuseUnknown(cmd)
		},
	}
}

// expander replaces the placeholders in a text.
type expander = func(template string) (string, error)

// refuseUnknown makes a command that only has others fail where none of them is
// meant: a script must see a word that is misspelt, and cobra would print the help
// and succeed.
func refuseUnknown(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// flagsOnly refuses what stands where only flags do. Cobra would call it an
// unknown command.
func flagsOnly(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q is no flag, and nothing else is taken here: --help lists the flags, such as --tenant <tenant> of explain", args[0])
}

// schemaCommand prints the SQL that makes the table.
func schemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schema",
		Short:   "Prints the SQL that makes the table of rules",
		Long:    "Prints the SQL that makes the table of rules, with its optional columns and the trigger that tells the gateways about changes.",
		Example: "  caddy rate-limit schema | psql postgres://127.0.0.1/gateway",
		Args:    flagsOnly,
		RunE:    caddycmd.WrapCommandFuncForCobra(printSchema),
	}
	cmd.Flags().String("table", rulecache.DefaultTable, "name of the table, with its schema if it needs one")
	cmd.Flags().String("channel", rulecache.DefaultChannel, "channel of the notifications")
	cmd.Flags().String("tenants", "", "print the table of tenants instead, of this name: which plan each has, and who is blocked")
	cmd.Flags().Bool("regions", false, "print the tables of the regions' shares instead, in the schema of the table")
	return cmd
}

func printSchema(flags caddycmd.Flags) (int, error) {
	options := rulecache.Options{DSN: "postgres://localhost", Table: flags.String("table"), Tenants: flags.String("tenants")}
	if err := options.Validate(); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	settings := rulecache.Settings{Channel: flags.String("channel")}
	if err := settings.Validate(); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	if options.Tenants != "" {
		fmt.Print(rulecache.TenantsSchema(options.Tenants, settings.Channel))
		return caddy.ExitCodeSuccess, nil
	}
	if flags.Bool("regions") {
		fmt.Print(regions.Schema(regions.SchemaOf(options.Table)))
		return caddy.ExitCodeSuccess, nil
	}
	fmt.Print(rulecache.Schema(options.Table, settings.Channel))
	return caddy.ExitCodeSuccess, nil
}
