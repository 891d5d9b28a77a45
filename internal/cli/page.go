package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/internal/cli/page"
)

// pageCommand serves the page on which operators see the state of the gateways.
func pageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Serves a web page that shows the state of the gateways",
		Long: `Serves a web page that shows the state of the gateways, at an address of this
machine alone that is printed, until the command ends. Name each gateway's admin
address with an --address of its own: <host>:<port>, unix/<path>, or
ssh://[<user>@]<host>[:<port>][/<address there>], which runs ssh. Whoever knows the
printed address can see and reset what you can.`,
		Example: `  caddy rate-limit page
  caddy rate-limit page --address ssh://gateway-1 --address ssh://gateway-2`,
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, args []string) error {
			addresses, err := cmd.Flags().GetStringArray("address")
			if err != nil {
				return fmt.Errorf("reading the addresses: %w", err)
			}
			return caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
				return servePage(flags, addresses)
			})(cmd, args)
		},
	}
	cmd.Flags().StringArray("address", nil, "Address of a gateway's administration API, as often as there are gateways (if --config is not used)")
	cmd.Flags().StringP("config", "c", "", "Configuration file (if --address is not used)")
	cmd.Flags().StringP("adapter", "a", "", "Name of config adapter to apply (if --config is used)")
	cmd.Flags().Uint16("port", 0, "port of 127.0.0.1 where the page is (default: a free one)")
	return cmd
}

// servePage serves until it is interrupted.
func servePage(flags caddycmd.Flags, addresses []string) (int, error) {
	if len(addresses) == 0 {
		address, err := caddycmd.DetermineAdminAPIAddress("", nil, flags.String("config"), flags.String("adapter"))
		if err != nil {
			return caddy.ExitCodeFailedStartup, fmt.Errorf("finding the address of the admin API: %w", err)
		}
		addresses = []string{address}
	}
	port, err := flags.GetUint16("port")
	if err != nil {
		return caddy.ExitCodeFailedStartup, fmt.Errorf("reading the port: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := showPage(ctx, os.Stdout, page.Options{Addresses: addresses, Port: int(port)}); err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	return caddy.ExitCodeSuccess, nil
}

// showPage tells where the page is and serves it until the context ends. No browser is
// started: every user of this machine could read the address in its list of processes.
func showPage(ctx context.Context, out io.Writer, options page.Options) error {
	served, err := page.Open(ctx, options)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\nOpen this address in a browser. It holds a secret, and ends with this command: Ctrl-C.\n", served.URL())
	return served.Serve(ctx)
}
