package block

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/limit"
)

// Bounds are what a number of the configuration may be, in the words of errors.
type Bounds[T int | time.Duration] struct{ Min, Max T }

// Check returns an error that names the field and what is allowed, unless n is
// within the bounds.
func (b Bounds[T]) Check(field string, n T) error {
	if n < b.Min || n > b.Max {
		return fmt.Errorf("%s: %v is out of bounds: allowed are %v to %v", field, n, b.Min, b.Max)
	}
	return nil
}

// CheckSet is Check for a field whose zero value means the default.
func (b Bounds[T]) CheckSet(field string, n T) error {
	if n == 0 {
		return nil
	}
	return b.Check(field, n)
}

// OneOf returns an error that lists the words, unless word is one or empty.
func OneOf(field, word string, words ...string) error {
	if word == "" || slices.Contains(words, word) {
		return nil
	}
	return fmt.Errorf("%s: %w", field, limit.UnknownWord("word", word, words...))
}

// ParseInteger reads a whole number within the bounds; an error begins with the name.
func ParseInteger(name, value string, within Bounds[int]) (int, error) {
	parsed, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a whole number: allowed are %d to %d", name, Clipped(value), within.Min, within.Max)
	}
	return parsed, within.Check(name, parsed)
}

// ParseDuration reads a duration within the bounds; an error begins with the name.
func ParseDuration(name, value string, within Bounds[time.Duration]) (time.Duration, error) {
	parsed, err := caddy.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a duration with a unit, such as 5ms or 30s", name, Clipped(value))
	}
	return parsed, within.Check(name, parsed)
}

// Clipped bounds what an error quotes of a name.
func Clipped(name string) string {
	const most = 64
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

var placeholder = regexp.MustCompile(`\{(env|file)\.[^{}]*\}`)

// HasPlaceholder reports whether the text has a placeholder that is replaced at load.
func HasPlaceholder(text string) bool { return placeholder.MatchString(text) }

// Expand replaces the placeholders in a text. One that is unknown or empty is an
// error: an empty address would be another server's. The error holds nothing of the
// text but such placeholders, because it may be a secret. White space around a value
// is cut: a variable or a file mostly ends with a newline that nobody means.
func Expand(template string) (string, error) {
	expanded, err := caddy.NewReplacer().ReplaceFunc(template, func(_ string, value any) (any, error) {
		text := strings.TrimSpace(caddy.ToString(value))
		if text == "" {
			return nil, errNoValue
		}
		return text, nil
	})
	if err != nil {
		return "", fmt.Errorf("a placeholder in it is unknown or has no value: %s",
			strings.Join(placeholder.FindAllString(template, -1), " "))
	}
	return expanded, nil
}

var errNoValue = errors.New("no value")
