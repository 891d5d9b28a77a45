package rulecache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/limit"
)

// maxBadLines is how many bad lines of a file are told one by one.
const maxBadLines = 10

// ImportFormat is the form of a file of rules.
type ImportFormat string

// The formats of files.
const (
	// FormatCSV has a line with the names of the columns, and then one rule a line.
	FormatCSV ImportFormat = "csv"
	// FormatJSONLines has one JSON object a line.
	FormatJSONLines ImportFormat = "jsonl"
)

// ParseImportFormat reads the word for a format. The error lists those allowed.
func ParseImportFormat(word string) (ImportFormat, error) {
	switch format := ImportFormat(word); format {
	case FormatCSV, FormatJSONLines:
		return format, nil
	}
	return "", limit.UnknownWord("format", word, string(FormatCSV), string(FormatJSONLines))
}

// ImportFile is a file of rules, each of which was checked.
type ImportFile struct {
	used      [columnCount]bool // the columns that the file has
	copied    bytes.Buffer      // the rules as COPY reads them
	lines     []int32           // the line of each rule
	fractions badLines          // whose refill is not whole
}

// Len returns the number of rules.
func (f *ImportFile) Len() int { return len(f.lines) }

// BadLine is a line that is no rule.
type BadLine struct {
	// Line is the number of the line, from 1.
	Line int `json:"line"`
	// Reason says what is wrong with it and what would be right.
	Reason string `json:"reason"`
}

// ImportError tells which lines of a file are no rules.
type ImportError struct {
	// Count is how many lines are bad, at least: nothing is read behind a line
	// that hides where the next one begins.
	Count int
	// Lines are the first ten of them.
	Lines []BadLine
}

// Error names the first bad line, and how many there are.
func (e *ImportError) Error() string {
	first := fmt.Sprintf("line %d: %s", e.Lines[0].Line, e.Lines[0].Reason)
	if e.Count == 1 {
		return first
	}
	return fmt.Sprintf("%d lines are bad, the first is %s", e.Count, first)
}

// ReadImport reads a file of rules and checks each as a Source would check the
// row. Progress, unless nil, is told of the number of lines read, now and then.
// An error that tells of bad lines is an *ImportError.
func ReadImport(r io.Reader, format ImportFormat, progress func(lines int)) (*ImportFile, error) {
	if progress == nil {
		progress = func(int) {}
	}
	reader := &importReader{file: new(ImportFile), seen: map[Pair]int32{}, progress: progress}
	read := reader.readCSV
	if format == FormatJSONLines {
		read = reader.readJSONLines
	}
	if err := read(r); err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	if bad := reader.bad; bad.Count > 0 {
		return nil, &ImportError{Count: bad.Count, Lines: bad.Lines}
	}
	if reader.file.Len() == 0 {
		return nil, errors.New("there is no rule in it: to delete all rules, run DELETE FROM the table in psql")
	}
	return reader.file, nil
}

// badLines collects an ImportError.
type badLines struct {
	Count int
	Lines []BadLine
}

func (b *badLines) add(line int, reason string) {
	b.Count++
	if len(b.Lines) < maxBadLines {
		b.Lines = append(b.Lines, BadLine{Line: line, Reason: reason})
	}
}

// importReader checks the rules of a file, whatever its format.
type importReader struct {
	file     *ImportFile
	seen     map[Pair]int32
	bad      badLines
	progress func(lines int)
}

// linesPerProgress is after how many lines progress is told.
const linesPerProgress = 1000

// add checks a rule and keeps it as COPY reads it. After a bad line none is kept,
// because none is written.
func (r *importReader) add(line int, values *row) {
	if line%linesPerProgress == 0 {
		r.progress(line)
	}
	pair, rule, err := values.imported()
	if err == nil {
		err = r.once(pair, line)
	}
	if err != nil {
		r.bad.add(line, err.Error())
		return
	}
	if rule.Refill != math.Trunc(rule.Refill) {
		r.file.fractions.add(line, fmt.Sprintf("refill_per_second %v is not whole, and the table's column is for whole numbers: change its type to DOUBLE PRECISION", rule.Refill))
	}
	if r.bad.Count == 0 {
		r.file.keep(line, pair, rule)
	}
}

// once refuses a pair that was there before.
func (r *importReader) once(pair Pair, line int) error {
	if first, found := r.seen[pair]; found {
		return fmt.Errorf("duplicate: line %d has the same tenant and route", first)
	}
	switch {
	case len(r.seen) == MaxMaxRules:
		return fmt.Errorf("there are more than %d rules, which no gateway takes", MaxMaxRules)
	case line > math.MaxInt32:
		return errors.New("the file has too many lines")
	}
	r.seen[pair] = int32(line)
	return nil
}

// imported is what a row of the table is checked for, and what PostgreSQL could
// not store or no request could match.
func (r *row) imported() (Pair, limit.Rule, error) {
	pair := Pair{Tenant: string(r[columnTenant]), Route: string(r[columnRoute])}
	if err := pair.check(); err != nil {
		return pair, limit.Rule{}, err
	}
	switch {
	case strings.ContainsRune(pair.Tenant, 0):
		return pair, limit.Rule{}, errors.New("the tenant holds a NUL, which PostgreSQL cannot store")
	case strings.ContainsRune(pair.Tenant, utf8.RuneError):
		// JSON's half a surrogate pair is read as this, too.
		return pair, limit.Rule{}, errors.New("the tenant holds U+FFFD, which stands for a character that was lost before")
	}
	rule, err := r.rule()
	return pair, rule, err
}

// keep writes the rule as a line of COPY's text format: the columns from
// tenant_id on, the number of the line, and the refill once more.
func (f *ImportFile) keep(line int, pair Pair, rule limit.Rule) {
	text := f.copied.AvailableBuffer()
	text = appendEscaped(text, pair.Tenant)
	text = append(append(text, '\t'), pair.Route...)
	text = strconv.AppendInt(append(text, '\t'), rule.Capacity, 10)
	text = strconv.AppendFloat(append(text, '\t'), rule.Refill, 'f', -1, 64)
	text = appendWord(text, rule.Algorithm.String())
	text = appendWord(text, rule.Mode.String())
	text = appendWord(text, prefetchText(rule.Prefetch))
	text = appendWord(text, numberText(int64(rule.Shards)))
	text = appendWord(text, numberText(rule.Concurrent))
	text = strconv.AppendInt(append(text, '\t'), int64(line), 10)
	text = strconv.AppendFloat(append(text, '\t'), rule.Refill, 'g', -1, 64)
	f.copied.Write(append(text, '\n'))
	f.lines = append(f.lines, int32(line))
}

// appendEscaped writes a value of any characters.
func appendEscaped(text []byte, value string) []byte {
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\':
			text = append(text, '\\', '\\')
		case '\t':
			text = append(text, '\\', 't')
		case '\n':
			text = append(text, '\\', 'n')
		case '\r':
			text = append(text, '\\', 'r')
		default:
			text = append(text, c)
		}
	}
	return text
}

// appendWord writes a value that needs no escaping; "" is NULL.
func appendWord(text []byte, word string) []byte {
	if word == "" {
		word = `\N`
	}
	return append(append(text, '\t'), word...)
}

func prefetchText(n int32) string {
	switch n {
	case 0:
		return ""
	case limit.PrefetchOff:
		return "0"
	case limit.PrefetchAuto:
		return "auto"
	}
	return strconv.Itoa(int(n))
}

// numberText is a number of an optional column; 0 is none.
func numberText(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
