package cli

import (
	"context"
	"encoding/json"
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
func importCommand(expand expander) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import --dsn <url> [--table <name>] [--format csv|jsonl] [--delete-missing] [--yes] [--json] <file>|-",
		Short: "Writes a file of rules into the table of rules, after showing what would change",
		Long: `Writes the rules of a file into the PostgreSQL table that the gateways read.

The file is CSV with a header, or has one JSON object a line (.jsonl, .ndjson);
- is the standard input, and needs --format. Its columns are the table's:
tenant_id, route_id, capacity and refill_per_second, and, where the table has
them, algorithm, mode, prefetch, shards and concurrent.

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
			return importRules(ctx, flags, expand)
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
func importRules(ctx context.Context, flags caddycmd.Flags, expand expander) (int, error) {
	options, err := importOptions(flags, expand)
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
func importOptions(flags caddycmd.Flags, expand expander) (rulecache.ImportOptions, error) {
	table, err := tableOptions(flags, expand)
	return rulecache.ImportOptions{Options: table, DeleteMissing: flags.Bool("delete-missing"), Apply: flags.Bool("yes")}, err
}

// tableOptions reads the flags that name the table.
func tableOptions(flags caddycmd.Flags, expand expander) (rulecache.Options, error) {
	dsn := flags.String("dsn")
	if dsn == "" {
		return rulecache.Options{}, errors.New("--dsn is needed: a URL such as postgres://user@127.0.0.1/gateway, or '{env.RULES_URL}'")
	}
	if _, err := expand(dsn); err != nil {
		return rulecache.Options{}, fmt.Errorf("--dsn: %w", err)
	}
	options := rulecache.Options{DSN: dsn, Expand: expand, Table: flags.String("table")}
	return options, options.Validate()
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

// printBadLines lists the lines that are no rules; the error itself names only
// the first.
func printBadLines(out io.Writer, err error) {
	bad, found := errors.AsType[*rulecache.ImportError](err)
	if !found {
		return
	}
	for _, line := range bad.Lines {
		fmt.Fprintf(out, "line %d: %s\n", line.Line, line.Reason)
	}
	if more := bad.Count - len(bad.Lines); more > 0 {
		fmt.Fprintf(out, "and %d more bad lines\n", more)
	}
	fmt.Fprintln(out, "nothing was written")
}

// printImport shows the differences as people read them.
func printImport(out io.Writer, result *rulecache.ImportResult) {
	counts := map[rulecache.ChangeKind]int{
		rulecache.ChangeInsert: result.Inserted, rulecache.ChangeUpdate: result.Updated, rulecache.ChangeDelete: result.Deleted,
	}
	for i, change := range result.Changes {
		fmt.Fprintf(out, "%s %s %s %s\n", changeSign(change.Kind), shownName(change.Pair.Tenant), shownName(change.Pair.Route), shownValues(change))
		counts[change.Kind]--
		if last := i == len(result.Changes)-1 || result.Changes[i+1].Kind != change.Kind; last && counts[change.Kind] > 0 {
			fmt.Fprintf(out, "%s … and %d more\n", changeSign(change.Kind), counts[change.Kind])
		}
	}
	fmt.Fprintf(out, "%d inserted, %d updated, %d deleted, %d unchanged, %d not in the file and kept\n",
		result.Inserted, result.Updated, result.Deleted, result.Unchanged, result.Others)
	switch {
	case result.Differences() == 0:
		fmt.Fprintln(out, "nothing to do")
	case result.Applied:
		fmt.Fprintln(out, "written")
	default:
		fmt.Fprintln(out, "nothing was written: run it again with --yes")
	}
}

// warnOfManyRules tells of a table that gateways refuse whole unless they are
// told to take it.
func warnOfManyRules(out io.Writer, result *rulecache.ImportResult) {
	if rows := result.Rows(); rows > rulecache.DefaultMaxRules {
		fmt.Fprintf(out, "warning: the table then has %d rows, and a gateway refuses a table with more than its max_rules (by default %d)\n",
			rows, rulecache.DefaultMaxRules)
	}
}

func changeSign(kind rulecache.ChangeKind) string {
	switch kind {
	case rulecache.ChangeInsert:
		return "+"
	case rulecache.ChangeDelete:
		return "-"
	default:
		return "~"
	}
}

// shownName quotes a name where it could be mistaken, and could steer a terminal.
func shownName(name string) string {
	if quoted := fmt.Sprintf("%q", name); name == "" || strings.Contains(name, " ") || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// shownValues writes `capacity 10 -> 20` for an update, and `capacity 10` else.
func shownValues(change rulecache.ImportChange) string {
	shown := make([]string, 0, len(change.Values))
	for _, value := range change.Values {
		switch {
		case change.Kind == rulecache.ChangeUpdate:
			shown = append(shown, value.Column+" "+shownValue(value.Before)+" -> "+shownValue(value.After))
		case value.Before != nil:
			shown = append(shown, value.Column+" "+shownName(*value.Before))
		case value.After != nil:
			shown = append(shown, value.Column+" "+shownName(*value.After))
		}
	}
	return strings.Join(shown, ", ")
}

func shownValue(value *string) string {
	if value == nil {
		return "NULL"
	}
	return shownName(*value)
}

// importReport is the JSON of an import.
type importReport struct {
	Applied   bool                `json:"applied"`
	Inserted  int                 `json:"inserted"`
	Updated   int                 `json:"updated"`
	Deleted   int                 `json:"deleted"`
	Unchanged int                 `json:"unchanged"`
	Others    int                 `json:"others"`
	Changes   []importChange      `json:"changes,omitempty"`
	Error     string              `json:"error,omitempty"`
	BadCount  int                 `json:"bad_count,omitempty"`
	BadLines  []rulecache.BadLine `json:"bad_lines,omitempty"`
}

// importChange is the JSON of one row that differs.
type importChange struct {
	Change rulecache.ChangeKind `json:"change"`
	Tenant string               `json:"tenant_id"`
	Route  string               `json:"route_id"`
	Before map[string]*string   `json:"before,omitempty"`
	After  map[string]*string   `json:"after,omitempty"`
}

// printImportJSON prints the outcome for scripts.
func printImportJSON(out io.Writer, result *rulecache.ImportResult, failure error) error {
	report := importReport{}
	if failure != nil {
		report.Error = failure.Error()
		if bad, found := errors.AsType[*rulecache.ImportError](failure); found {
			report.BadCount, report.BadLines = bad.Count, bad.Lines
		}
	}
	if result != nil {
		report.Applied, report.Others = result.Applied, result.Others
		report.Inserted, report.Updated, report.Deleted, report.Unchanged = result.Inserted, result.Updated, result.Deleted, result.Unchanged
		for _, change := range result.Changes {
			report.Changes = append(report.Changes, newImportChange(change))
		}
	}
	text := json.NewEncoder(out)
	text.SetIndent("", "  ")
	if err := text.Encode(report); err != nil {
		return fmt.Errorf("printing the outcome: %w", err)
	}
	return nil
}

func newImportChange(change rulecache.ImportChange) importChange {
	shown := importChange{Change: change.Kind, Tenant: change.Pair.Tenant, Route: change.Pair.Route}
	if change.Kind != rulecache.ChangeInsert {
		shown.Before = map[string]*string{}
	}
	if change.Kind != rulecache.ChangeDelete {
		shown.After = map[string]*string{}
	}
	for _, value := range change.Values {
		if shown.Before != nil {
			shown.Before[value.Column] = value.Before
		}
		if shown.After != nil {
			shown.After[value.Column] = value.After
		}
	}
	return shown
}
