package tally

import "bytes"

// maxKey is how much is kept of a string that may be a key, and maxNumber of a number.
const (
	maxKey    = maxLength + 1
	maxNumber = 32
)

// scanner finds numbers at paths in JSON that comes in parts. It keeps a key and a
// number of it at most, whatever comes: how deep it is, how long a text. It does not
// check the JSON: what is broken has no numbers, or those that stand in it.
type scanner struct {
	paths  []Path
	places []place
	depth  int

	inString, escaped bool
	key               []byte // of the string, as far as it may be one
	long              bool   // the string is no key of ours
	isKey             bool   // a string has ended, and may be a key
	number            []byte
	tooLong           bool
	scalar            bool // a number, or another word, is under way
}

// place is where the scan is on one choice of a path, and what it has found.
type place struct {
	path, choice int
	names        []string
	at           int  // how many names lead to the object that the scan is in
	value        bool // the key before was the next name
	found        bool
	bad          bool
	n            int64
}

func newScanner(paths []Path) scanner {
	s := scanner{paths: paths}
	for i := range paths {
		for c, names := range paths[i].choices {
			s.places = append(s.places, place{path: i, choice: c, names: names})
		}
	}
	return s
}

// next begins another document. What was found stays until it is found again.
func (s *scanner) next() {
	s.endScalar()
	s.depth, s.inString, s.escaped, s.isKey = 0, false, false, false
	for i := range s.places {
		s.places[i].at, s.places[i].value = 0, false
	}
}

// write reads the next part.
func (s *scanner) write(part []byte) {
	for len(part) > 0 {
		if s.inString {
			part = s.text(part)
			continue
		}
		c := part[0]
		part = part[1:]
		switch c {
		case ' ', '\t', '\r', '\n', ',':
			s.endScalar()
			if c == ',' {
				s.isKey = false
				s.valueEnds()
			}
		case '"':
			s.endScalar()
			s.inString, s.key, s.long = true, s.key[:0], false
		case ':':
			s.endScalar()
			if s.isKey {
				s.named()
			}
			s.isKey = false
		case '{', '[':
			s.endScalar()
			s.open(c == '{')
		case '}', ']':
			s.endScalar()
			s.close()
		default:
			s.word(c)
		}
	}
}

// text reads on in a string, and returns what stands behind it.
func (s *scanner) text(part []byte) []byte {
	if s.escaped {
		s.escaped, s.long = false, true // no name of ours has an escape in it
		return part[1:]
	}
	end := bytes.IndexAny(part, `"\`)
	kept := part
	if end >= 0 {
		kept = part[:end]
	}
	if room := maxKey - len(s.key); len(kept) > room {
		kept, s.long = kept[:room], true
	}
	s.key = append(s.key, kept...)
	if end < 0 {
		return nil
	}
	if part[end] == '\\' {
		s.escaped = true
	} else {
		s.inString, s.isKey = false, true
	}
	return part[end+1:]
}

// named notes that a key has ended, whose value follows.
func (s *scanner) named() {
	for i := range s.places {
		p := &s.places[i]
		p.value = !s.long && s.depth == p.at+1 && string(s.key) == p.names[p.at]
	}
}

func (s *scanner) open(object bool) {
	s.isKey = false
	for i := range s.places {
		p := &s.places[i]
		if p.value && object && p.at+1 < len(p.names) {
			p.at++
		} else if p.value {
			p.miss()
		}
		p.value = false
	}
	s.depth++
}

func (s *scanner) close() {
	s.isKey = false
	s.valueEnds()
	s.depth = max(0, s.depth-1)
	for i := range s.places {
		if p := &s.places[i]; p.at > 0 && s.depth == p.at {
			p.at--
		}
	}
}

// valueEnds notes that a value has ended that was no number: a text.
func (s *scanner) valueEnds() {
	for i := range s.places {
		if p := &s.places[i]; p.value {
			p.miss()
			p.value = false
		}
	}
}

// miss notes that what is at the end of the path is no number.
func (p *place) miss() {
	if p.at+1 == len(p.names) {
		p.bad = true
	}
}

// word reads a byte of a number, or of true, false or null.
func (s *scanner) word(c byte) {
	if !s.scalar {
		s.scalar, s.number, s.tooLong = true, s.number[:0], false
	}
	if len(s.number) == maxNumber {
		s.tooLong = true
		return
	}
	s.number = append(s.number, c)
}

// endScalar ends a number, if one is under way.
func (s *scanner) endScalar() {
	if !s.scalar {
		return
	}
	s.scalar = false
	null := string(s.number) == "null"
	n, ok := Number(string(s.number))
	for i := range s.places {
		p := &s.places[i]
		if p.value && p.at+1 == len(p.names) && !null {
			p.found, p.bad, p.n = ok && !s.tooLong, !ok || s.tooLong, n
		}
		p.value = false
	}
}

// sum adds up the paths.
func (s *scanner) sum() (sum int64, ok bool) {
	for i := range s.paths {
		for k := range s.places {
			p := &s.places[k]
			if p.path != i || !p.found && !p.bad {
				continue
			}
			if p.bad {
				return 0, false
			}
			ok = true
			if p.n > (MaxValue-sum)/s.paths[i].weight {
				return 0, false
			}
			sum += p.n * s.paths[i].weight
			break // the first choice that is there
		}
	}
	return sum, ok
}
