package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// markers stand before and after a part of a page that a program writes.
type markers struct{ begin, end string }

var gatewayMarkers = markers{"<!-- gateway:begin -->", "<!-- gateway:end -->"} //nolint:gochecknoglobals // a constant

// writeBetween puts the text between the markers of a file and leaves the rest as
// it is. A file that has no markers gets them at its end.
func writeBetween(file string, m markers, text string) error {
	page, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the page: %w", err)
	}
	changed, err := between(string(page), m, text)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil { //nolint:gosec // a page for all to read
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// between is the page with the text between its markers.
func between(page string, m markers, text string) (string, error) {
	begins, ends := strings.Count(page, m.begin), strings.Count(page, m.end)
	part := m.begin + "\n" + strings.TrimRight(text, "\n") + "\n" + m.end
	switch {
	case begins == 0 && ends == 0:
		if page != "" {
			page = strings.TrimRight(page, "\n") + "\n\n"
		}
		return page + part + "\n", nil
	case begins != 1 || ends != 1 || strings.Index(page, m.end) < strings.Index(page, m.begin):
		return "", fmt.Errorf("the page must have %s and then %s, once each", m.begin, m.end)
	}
	before, rest, _ := strings.Cut(page, m.begin)
	_, after, _ := strings.Cut(rest, m.end)
	return before + part + after, nil
}
