// Package tally reads from an answer what it cost, while it passes: numbers at paths
// of JSON and of streams of JSON, without keeping the answer. Open tally.go first;
// scan.go reads JSON byte by byte. It knows no Caddy.
package tally

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
)

const (
	// MaxValue is the largest number that an answer may cost: the whole numbers up to
	// it are exact everywhere.
	MaxValue = 1 << 53
	// maxPaths and maxLength bound what is kept.
	maxPaths  = 16
	maxLength = 256
)

// Path is a place in JSON, with others that count where it is not there, and how
// often its number counts.
type Path struct {
	choices [][]string
	weight  int64
}

// ParsePaths reads paths such as `usage.input_tokens`, `a.b|c`, where the first that is
// there counts, and `usage.output_tokens*4`, which counts four times.
func ParsePaths(texts []string) ([]Path, error) {
	if len(texts) == 0 || len(texts) > maxPaths {
		return nil, fmt.Errorf("%d paths: allowed are 1 to %d, such as usage.total_tokens", len(texts), maxPaths)
	}
	paths := make([]Path, len(texts))
	for i, text := range texts {
		var err error
		if paths[i], err = parsePath(text); err != nil {
			return nil, fmt.Errorf("%q is no path: %w", text, err)
		}
	}
	return paths, nil
}

func parsePath(text string) (Path, error) {
	p := Path{weight: 1}
	body, weight, found := strings.Cut(text, "*")
	if found {
		n, err := strconv.ParseInt(weight, 10, 32)
		if err != nil || n < 1 || n > 1_000_000 {
			return p, errors.New("what stands behind * is how often it counts, from 1 to 1000000")
		}
		p.weight = n
	}
	if len(body) > maxLength {
		return p, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	for choice := range strings.SplitSeq(body, "|") {
		names := strings.Split(choice, ".")
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, "\"\\{}[] ") {
				return p, errors.New("names are joined by dots, as in usage.total_tokens")
			}
		}
		p.choices = append(p.choices, names)
	}
	return p, nil
}

// Number reads a whole number from 0 to MaxValue, in digits alone.
func Number(text string) (int64, bool) {
	if text == "" || len(text) > 16 {
		return 0, false
	}
	var n int64
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(text[i]-'0')
	}
	return n, n <= MaxValue
}

// Kind is how an answer's body is made up.
type Kind uint8

// The kinds of bodies.
const (
	// Other is a body that is not read.
	Other Kind = iota
	// Document is one JSON document.
	Document
	// Events is a stream of server-sent events, of which each may hold a document.
	Events
	// Lines is a stream of documents, one a line.
	Lines
)

// KindOf returns the kind of body that a Content-Type announces.
func KindOf(contentType string) Kind {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return Other
	case media == "text/event-stream":
		return Events
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl":
		return Lines
	case media == "application/json", strings.HasSuffix(media, "+json"):
		return Document
	default:
		return Other
	}
}

// Reader sums up the numbers of a body. Make one with NewReader.
type Reader struct {
	kind   Kind
	scan   scanner
	events int64
	// Of a stream of events: whether the line is one of data, and what of its name has
	// come.
	inData  bool
	skipped bool // the line is none of data
	name    int
	any     bool // the event has data
	cr      bool
}

// NewReader returns a reader of a body of a kind.
func NewReader(kind Kind, paths []Path) *Reader {
	return &Reader{kind: kind, scan: newScanner(paths)}
}

// Write reads the next part of the body. It never fails and keeps nothing of it.
func (r *Reader) Write(body []byte) {
	switch r.kind {
	case Events:
		r.writeEvents(body)
	case Lines:
		for line := range bytes.SplitAfterSeq(body, []byte{'\n'}) {
			r.scan.write(line)
			if bytes.HasSuffix(line, []byte{'\n'}) {
				r.scan.next()
				r.events++
			}
		}
	case Document:
		r.scan.write(body)
	case Other:
	}
}

// data is the name of a line that holds a part of an event's document.
const data = "data:"

func (r *Reader) writeEvents(body []byte) {
	for len(body) > 0 {
		end := bytes.IndexAny(body, "\r\n")
		line := body
		if end >= 0 {
			line = body[:end]
		}
		r.writeLine(line)
		if end < 0 {
			return
		}
		// A line ends with CR, LF or both.
		if both := body[end] == '\n' && r.cr && end == 0; !both {
			r.endLine()
		}
		r.cr = body[end] == '\r'
		body = body[end+1:]
	}
}

func (r *Reader) writeLine(part []byte) {
	if len(part) > 0 {
		r.cr = false
	}
	for len(part) > 0 && !r.inData && !r.skipped {
		if part[0] != data[r.name] {
			r.skipped = true
			return
		}
		part = part[1:]
		if r.name++; r.name == len(data) {
			r.inData, r.any = true, true
		}
	}
	if r.inData {
		r.scan.write(part)
	}
}

func (r *Reader) endLine() {
	blank := r.name == 0 && !r.skipped
	if r.inData {
		r.scan.write([]byte{'\n'})
	}
	r.inData, r.skipped, r.name = false, false, 0
	if blank && r.any {
		r.events++
		r.any = false
		r.scan.next()
	}
}

// Events returns how many events have passed.
func (r *Reader) Events() int64 { return r.events }

// SoFar returns what the numbers that have passed come to, 0 where they come to none.
func (r *Reader) SoFar() int64 {
	sum, _ := r.scan.sum()
	return sum
}

// Sum returns what the numbers at the paths come to, each path's last one in a stream.
// It is not ok where none was there, or one was no whole number from 0 to MaxValue.
func (r *Reader) Sum() (sum int64, ok bool) {
	r.scan.endScalar()
	return r.scan.sum()
}
