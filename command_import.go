package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddygate/ratelimit/rulecache"
)

// importCommand writes a file of rules into the table.
func importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import --dsn <url> [--table <name>] [--format csv|jsonl] [--delete-missing] [--yes] [--json] <file>|-",
		Short: "Writes a file of rules into the table of rules, after showing what would change",
		Long: `Writes the rules of a file into the PostgreSQL table that the gateways read.

The file is CSV with a header, or has one JSON object a line (.jsonl, .ndjson);
- is the standard input, and needs --format. Its columns are the table's:
tenant_id, route_id, capacity and refill_per_second, and, where the table has
them, algorithm, mode, prefetch and shards.

Every line is checked before anything is written. A bad one stops the import and
is named. Then the differences to the table are shown, and with --yes they are
written in one transaction: all or nothing. Rows that the file does not name stay,
unless --delete-missing says otherwise.

The exit code is 0 where the table was changed or the differences shown, and 1
where something is wrong, and then nothing was written.`,
		Example: "  caddy rate-limit import --dsn '{env.RULES_URL}' rules.csv\n" +
			"  caddy rate-limit import --dsn '{env.RULES_URL}' --yes rules.csv",
		Args: cobra.ExactArgs(1),
		RunE: caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends the process
			return importRules(ctx, flags)
		}),
	}
	cmd.Flags().String("dsn", "", "URL of the database; {env.NAME} and {file./path} in it are replaced, and keep a password out of the list of processes")
	cmd.Flags().String("table", rulecache.DefaultTable, "name of the table, with its schema if it needs one")
	cmd.Flags().String("format", "", "csv or jsonl (default: by the file's name)")
	cmd.Flags().Bool("delete-missing", false, "delete the rows that the file does not name")
	cmd.Flags().Bool("yes", false, "write the differences instead of only showing them")
	cmd.Flags().Bool("json", false, "print JSON for scripts")
	return cmd
}

// importRules reads the file, compares it with the table and tells the outcome.
func importRules(ctx context.Context, flags caddycmd.Flags) (int, error) {
	options, err := importOptions(flags)
	if err != nil {
		return caddy.ExitCodeFailedStartup, err
	}
	progress := &importProgress{out: os.Stderr, now: time.Now, last: time.Now()}
	options.Progress = progress.tell
	result, err := importFile(ctx, flags, options)
	if result != nil {
		warnOfManyRules(os.Stderr, result)
	}
	if ctx.Err() != nil && err != nil && !errors.Is(err, rulecache.ErrUnknownOutcome) {
		err = errors.New("interrupted: nothing was written")
	}
	if flags.Bool("json") {
		printErr := printImportJSON(os.Stdout, result, err)
		return exitCode(err), errors.Join(err, printErr)
	}
	if err != nil {
		printBadLines(os.Stderr, err)
		return caddy.ExitCodeFailedStartup, err
	}
	printImport(os.Stdout, result)
	return caddy.ExitCodeSuccess, nil
}

func exitCode(err error) int {
	if err != nil {
		return caddy.ExitCodeFailedStartup
	}
	return caddy.ExitCodeSuccess
}

// importOptions reads the flags.
func importOptions(flags caddycmd.Flags) (rulecache.ImportOptions, error) {
	options := rulecache.ImportOptions{DeleteMissing: flags.Bool("delete-missing"), Apply: flags.Bool("yes")}
	dsn := flags.String("dsn")
	if dsn == "" {
		return options, errors.New("--dsn is needed: a URL such as postgres://user@127.0.0.1/gateway, or '{env.RULES_URL}'")
	}
	if _, err := expandText(dsn); err != nil {
		return options, fmt.Errorf("--dsn: %w", err)
	}
	options.Options = rulecache.Options{DSN: dsn, Expand: expandText, Table: flags.String("table")}
	return options, options.Options.Validate()
}

// importFile reads the file and hands it to PostgreSQL.
func importFile(ctx context.Context, flags caddycmd.Flags, options rulecache.ImportOptions) (*rulecache.ImportResult, error) {
	name := flags.Arg(0)
	format, err := importFormat(flags.String("format"), name)
	if err != nil {
		return nil, err
	}
	in := io.ReadCloser(os.Stdin)
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return nil, fmt.Errorf("opening the file: %w", err)
		}
	}
	defer in.Close()
	file, err := readImport(ctx, in, format, options)
	if err != nil {
		return nil, err
	}
	return rulecache.Import(ctx, file, options)
}

// readImport reads the file until the command is interrupted. It does not wait for
// the read then: that from a terminal or a pipe may never end, and not even Close
// ends it. The process is about to.
func readImport(ctx context.Context, in io.Reader, format rulecache.ImportFormat, options rulecache.ImportOptions) (file *rulecache.ImportFile, err error) {
	done := make(chan struct{})
	var read *rulecache.ImportFile
	var failed error
	go func() {
		defer close(done)
		read, failed = rulecache.ReadImport(in, format, func(lines int) { options.Progress("reading", lines) })
	}()
	select {
	case <-done:
		return read, failed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// importFormat returns the format that is asked for, or that of the file's name.
func importFormat(word, name string) (rulecache.ImportFormat, error) {
	if word != "" {
		format, err := rulecache.ParseImportFormat(word)
		if err != nil {
			return "", fmt.Errorf("--format: %w", err)
		}
		return format, nil
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return rulecache.FormatCSV, nil
	case ".jsonl", ".ndjson":
		return rulecache.FormatJSONLines, nil
	}
	return "", errors.New("--format is needed where the file's name does not end in .csv, .jsonl or .ndjson: csv or jsonl")
}

// importProgress tells of an import that takes long, now and then.
type importProgress struct {
	out  io.Writer
	now  func() time.Time
	last time.Time
}

// progressInterval is the time between two lines.
const progressInterval = 2 * time.Second

func (p *importProgress) tell(step string, rules int) {
	if now := p.now(); now.Sub(p.last) >= progressInterval {
		p.last = now
		fmt.Fprintf(p.out, "%s: %d rules\n", step, rules)
	}
}
