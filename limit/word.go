package limit

import (
	"fmt"
	"slices"
	"strings"
)

// UnknownWord is the error for a word that is none of those allowed: it lists
// them, and suggests the one that was probably meant. What says what the word is
// for, such as "algorithm".
func UnknownWord(what, word string, allowed ...string) error {
	return fmt.Errorf("unknown %s %q: allowed are %s%s", what, clip(word), strings.Join(allowed, ", "), DidYouMean(word, allowed...))
}

// DidYouMean is the end of a message about a word that is none of those known:
// "; did you mean X?", or nothing where none is near.
func DidYouMean(word string, known ...string) string {
	if near := Nearest(word, known...); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// longestNear bounds the work for foreign words: nobody slips in longer ones.
const longestNear = 64

// Nearest returns the known word that was probably meant by another: the one that
// the fewest slips of a finger lead to, of which a word bears one for each three
// bytes, or the only one that it begins. It is empty where there is none.
func Nearest(word string, known ...string) string {
	if word == "" || len(word) > longestNear || slices.Contains(known, word) {
		return ""
	}
	lower, best, fewest := strings.ToLower(word), "", 1+max(1, min(len(word)/3, 3))
	for _, candidate := range known {
		if len(candidate) > longestNear {
			continue
		}
		if n := slips(lower, strings.ToLower(candidate)); n < fewest && n < len(candidate) {
			best, fewest = candidate, n
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, candidate := range known {
		if strings.HasPrefix(candidate, lower) {
			if best != "" {
				return "" // two begin so
			}
			best = candidate
		}
	}
	return best
}

// slips counts the bytes that are missing, too many, wrong, or changed places
// with their neighbour: the distance of Damerau and Levenshtein (optimal string
// alignment).
func slips(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
