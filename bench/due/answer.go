package due

import (
	"bytes"
	"errors"
	"strconv"
)

// errAnswer is an answer that makes no sense here: the gateways that are measured
// say how long theirs are.
var errAnswer = errors.New("reading an answer: it is no HTTP/1.1 with a Content-Length")

// answerOf reads the status of the answer at the beginning of text, and how long it
// is: 0 where some of it is still to come.
func answerOf(text []byte) (status, length int, err error) {
	head, _, whole := bytes.Cut(text, []byte("\r\n\r\n"))
	if !whole {
		return 0, 0, nil
	}
	first, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if status, err = statusOf(first); err != nil {
		return 0, 0, err
	}
	body, err := bodyOf(fields)
	if err != nil {
		return 0, 0, err
	}
	if length = len(head) + len("\r\n\r\n") + body; len(text) < length {
		return 0, 0, nil
	}
	return status, length, nil
}

func statusOf(line []byte) (int, error) {
	const before, digits = "HTTP/1.1 ", 3
	if len(line) < len(before)+digits || string(line[:len(before)]) != before {
		return 0, errAnswer
	}
	status, err := strconv.Atoi(string(line[len(before) : len(before)+digits]))
	if err != nil {
		return 0, errAnswer
	}
	return status, nil
}

// bodyOf finds how long the body is.
func bodyOf(fields []byte) (int, error) {
	const name = "Content-Length"
	for len(fields) > 0 {
		var line []byte
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
			continue
		}
		length, err := strconv.ParseUint(string(bytes.TrimSpace(line[len(name)+1:])), 10, 31)
		if err != nil {
			return 0, errAnswer
		}
		return int(length), nil
	}
	return 0, errAnswer
}
