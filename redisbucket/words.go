package redisbucket

import (
	"errors"
	"regexp"
	"strings"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// mostWords is how many bytes of an error that Redis replied are told.
const mostWords = 200

// quoted is a text that Redis quotes, but for the name of a command.
var quoted = regexp.MustCompile(`'[^']*'( command)?|"[^"]*"|` + "`[^`]*`")

// words is what Redis itself said of an error, blank where it said nothing: one
// line, without what it quotes of arguments, which may be keys and passwords.
func words(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return ""
	}
	text, _, _ := strings.Cut(reply.Error(), ", with args beginning with")
	text = quoted.ReplaceAllStringFunc(text, func(quote string) string {
		if strings.HasSuffix(quote, " command") {
			return quote
		}
		return "'…'"
	})
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > mostWords {
		text = strings.ToValidUTF8(text[:mostWords], "")
	}
	return strings.TrimSpace(text)
}
