package servertest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
)

// request is one Redis command as it came.
type request struct {
	name string
	args []string
	raw  []byte
}

var errNotRESP = errors.New("reading a request: not an array of bulk strings")

// readRequest reads one command, an array of bulk strings.
func readRequest(in *bufio.Reader) (request, error) {
	var raw bytes.Buffer
	count, err := readCount(in, &raw, '*')
	if err != nil {
		return request{}, err
	}
	args := make([]string, 0, count)
	for range count {
		length, err := readCount(in, &raw, '$')
		if err != nil {
			return request{}, err
		}
		start := raw.Len()
		if _, err := io.CopyN(&raw, in, int64(length)+2); err != nil {
			return request{}, err
		}
		args = append(args, string(raw.Bytes()[start:start+length]))
	}
	if count == 0 {
		return request{}, errNotRESP
	}
	return request{name: strings.ToUpper(args[0]), args: args[1:], raw: raw.Bytes()}, nil
}

func readCount(in *bufio.Reader, raw *bytes.Buffer, kind byte) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	raw.Write(line)
	if line[0] != kind {
		return 0, errNotRESP
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	if err != nil || n < 0 || n > 1<<20 {
		return 0, errNotRESP
	}
	return n, nil
}
