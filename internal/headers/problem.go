package headers

import (
	"slices"
	"strconv"
	"strings"
)

// ProblemMedia is the media type of a problem document (RFC 9457).
const ProblemMedia = "application/problem+json"

const problemStart = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
	`"title":"Request cannot be satisfied as assigned quota has been exceeded",` +
	`"status":`

// Problem returns the document of problem type quota-exceeded, after
// draft-ietf-httpapi-ratelimit-headers-11, section 5.1, for a request that was
// refused with a status by policies of these names, which are written as Policy does.
// The member reason, a word of ours, is no part of the draft.
func Problem(status int, names []string, reason string) []byte {
	document := append(make([]byte, 0, 288), problemStart...)
	document = strconv.AppendInt(document, int64(status), 10)
	document = append(document, `,"violated-policies":[`...)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		if i > 0 {
			document = append(document, ',')
		}
		document = appendName(document, name)
	}
	document = append(document, `],"reason":"`...)
	document = append(document, reason...)
	return append(document, "\"}\n"...)
}

// WantsProblem reports whether the values of Accept name problem documents. A
// wildcard does not: it says that anything is as good, so the short answer is.
func WantsProblem(accept []string) bool {
	for _, value := range accept {
		for value != "" {
			var member string
			member, value = cutUnquoted(value, ',')
			if namesProblem(member) {
				return true
			}
		}
	}
	return false
}

// namesProblem reports whether one media range of Accept (RFC 9110, section
// 12.5.1) is that of problem documents, with a weight above 0.
func namesProblem(member string) bool {
	media, parameters := cutUnquoted(member, ';')
	if !strings.EqualFold(strings.TrimSpace(media), ProblemMedia) {
		return false
	}
	for parameters != "" {
		var parameter string
		parameter, parameters = cutUnquoted(parameters, ';')
		key, value, _ := strings.Cut(parameter, "=")
		if strings.EqualFold(strings.TrimSpace(key), "q") {
			return weighs(strings.TrimSpace(value))
		}
	}
	return true
}

// weighs reports whether the text is a weight above 0: up to 1, with up to three
// decimals. What is none asks for nothing.
func weighs(text string) bool {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > 3 || strings.Trim(decimals, "0123456789") != "" {
		return false
	}
	zero := strings.Trim(decimals, "0") == ""
	return whole == "1" && zero || whole == "0" && !zero
}

// cutUnquoted cuts the text at the first separator outside quotes.
func cutUnquoted(text string, separator byte) (before, after string) {
	before, after, _ = strings.Cut(text, string(separator))
	if strings.IndexByte(before, '"') < 0 {
		return before, after
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == separator && !quoted:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}
