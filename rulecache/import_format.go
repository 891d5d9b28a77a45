package rulecache

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/limit"
)

// maxImportLine bounds a line of a file, in bytes.
const maxImportLine = 1 << 20

// readCSV reads CSV as RFC 4180 has it, with a header. A blank field of an
// optional column is NULL.
func (r *importReader) readCSV(file io.Reader) error {
	lines := csv.NewReader(skipMark(file))
	lines.ReuseRecord = true
	header, err := lines.Read()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the file is empty: its first line must name the columns")
	case err != nil:
		return r.csvError(err)
	}
	columns, err := r.header(header)
	if err != nil {
		r.bad.add(1, err.Error())
		return nil
	}
	for {
		fields, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, csv.ErrFieldCount):
			line, _ := lines.FieldPos(0)
			r.bad.add(line, fmt.Sprintf("it has %d fields, and the header has %d", len(fields), len(columns)))
		case err != nil:
			return r.csvError(err)
		default:
			line, _ := lines.FieldPos(0)
			r.add(line, csvRow(fields, columns))
		}
	}
}

// skipMark passes over the byte order mark that some programs write.
func skipMark(file io.Reader) *bufio.Reader {
	text := bufio.NewReaderSize(file, 1<<16)
	if start, _ := text.Peek(3); string(start) == "\ufeff" {
		_, _ = text.Discard(3)
	}
	return text
}

// csvError notes a line behind which no other can be found.
func (r *importReader) csvError(err error) error {
	var parsing *csv.ParseError
	if !errors.As(err, &parsing) {
		return err
	}
	r.bad.add(parsing.StartLine, parsing.Err.Error()+"; what follows was not read")
	return nil
}

// header finds the columns that a line of CSV has.
func (r *importReader) header(names []string) (columns []int, err error) {
	for _, name := range names {
		column, err := importColumn(name)
		if err != nil {
			return nil, err
		}
		if r.file.used[column] {
			return nil, fmt.Errorf("the column %s is there twice", name)
		}
		r.file.used[column] = true
		columns = append(columns, column)
	}
	known := columnNames()
	for column := columnTenant; column < firstOptionalColumn; column++ {
		if !r.file.used[column] {
			return nil, fmt.Errorf("the column %s is missing; the first line must name the columns", known[column])
		}
	}
	return columns, nil
}

// importColumn finds a column by its name; id is the table's own.
func importColumn(name string) (int, error) {
	known := columnNames()
	if column := slices.Index(known[:], name); column > columnID {
		return column, nil
	}
	if len(name) > maxNameLength {
		name = strings.ToValidUTF8(name[:maxNameLength], "") + "…"
	}
	return 0, limit.UnknownWord("column", name, known[columnID+1:]...)
}

func csvRow(fields []string, columns []int) *row {
	values := new(row)
	for i, column := range columns {
		if fields[i] == "" && column >= firstOptionalColumn {
			continue
		}
		values[column] = clipColumn(column, []byte(fields[i]))
	}
	return values
}

// clipColumn cuts what an error may quote. Names are not quoted where they are
// too long, and must not become right by a cut.
func clipColumn(column int, text []byte) []byte {
	if column >= columnCapacity && len(text) > maxNameLength+1 {
		return text[:maxNameLength+1]
	}
	return text
}

// readJSONLines reads one JSON object a line. A key that a line does not have is
// NULL where another line has it.
func (r *importReader) readJSONLines(file io.Reader) error {
	lines := bufio.NewScanner(skipMark(file))
	lines.Buffer(make([]byte, 1<<16), maxImportLine)
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		values, err := r.object(line)
		if err != nil {
			r.bad.add(number, err.Error())
			continue
		}
		r.add(number, values)
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		r.bad.add(number+1, fmt.Sprintf("it is longer than %d bytes; what follows was not read", maxImportLine))
		return nil
	}
	for column := columnTenant; column < firstOptionalColumn; column++ {
		r.file.used[column] = true
	}
	return err
}

// object reads a line of JSON, key by key, because a key that is there twice or
// unknown must not be passed over.
func (r *importReader) object(line []byte) (*row, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("it is not valid UTF-8")
	}
	tokens := json.NewDecoder(bytes.NewReader(line))
	tokens.UseNumber()
	if start, err := tokens.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	values := new(row)
	var seen [columnCount]bool
	for tokens.More() {
		column, err := r.member(tokens, values)
		switch {
		case err != nil:
			return nil, err
		case seen[column]:
			return nil, fmt.Errorf("the key %s is there twice", columnNames()[column])
		}
		seen[column] = true
	}
	if _, err := tokens.Token(); err != nil {
		return nil, errors.New("it is not a whole JSON object")
	}
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return values, nil
}

// member reads one key and its value.
func (r *importReader) member(tokens *json.Decoder, values *row) (int, error) {
	key, err := tokens.Token()
	if err != nil {
		return 0, errors.New("it is not valid JSON")
	}
	name, _ := key.(string) // More has seen that it is no end
	column, err := importColumn(name)
	if err != nil {
		return 0, err
	}
	value, err := tokens.Token()
	if err != nil {
		return 0, errors.New("it is not valid JSON")
	}
	r.file.used[column] = true
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	switch {
	case value == nil:
	case isText && holdsWords(column):
		values[column] = clipColumn(column, []byte(text))
	case isNumber && holdsNumbers(column):
		values[column] = clipColumn(column, []byte(number))
	case holdsWords(column):
		return 0, fmt.Errorf("%s is not a text in quotes", name)
	default:
		return 0, fmt.Errorf("%s is not a number", name)
	}
	return column, nil
}

func holdsWords(column int) bool {
	return column != columnCapacity && column != columnRefill && column != columnShards && column != columnConcurrent
}

func holdsNumbers(column int) bool {
	return !holdsWords(column) || column == columnPrefetch
}
