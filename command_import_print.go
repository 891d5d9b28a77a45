package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/caddygate/ratelimit/rulecache"
)

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
