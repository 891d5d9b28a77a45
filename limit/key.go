package limit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Key names the state of one tenant on one route. Tenant and Route are in the
// escaped form of EscapeName. What it is in Redis is for package redisbucket.
type Key struct {
	Tenant, Route string

	// Shard is 0 for the whole bucket and i+1 for its shard i.
	Shard uint8
}

// KeyRoom has room for what Append adds for most keys; longer ones allocate.
type KeyRoom [8 + MaxNameLength + MaxRouteLength]byte

// Append adds the key to dst, in a form that no two keys share, and returns it.
func (k Key) Append(dst []byte) []byte {
	dst = append(dst, k.Shard)
	dst = binary.AppendUvarint(dst, uint64(len(k.Tenant)))
	dst = append(dst, k.Tenant...)
	return append(dst, k.Route...)
}

// MaxNameLength is the longest escaped name, in bytes, that is kept as it is.
const MaxNameLength = 96

// hashedName marks a name that stands for one too long to keep. No escaped name
// begins with it, because a tilde is escaped.
const hashedName = "~sha256-"

// EscapeName turns any text into a name that is safe as a part of a key: every
// byte outside [A-Za-z0-9._@-] becomes %XX (upper-case hex), so two texts never
// share a name and a Redis hash tag is never broken. Where that is longer than
// MaxNameLength the name is "~sha256-" and the hex SHA-256 of the raw text. A
// text that needs no change is returned as it is, without allocating.
func EscapeName(raw string) string {
	escaped := 0
	for i := range len(raw) {
		if !plain(raw[i]) {
			escaped++
		}
	}
	length := len(raw) + 2*escaped
	switch {
	case length > MaxNameLength:
		sum := sha256.Sum256([]byte(raw))
		return hashedName + hex.EncodeToString(sum[:])
	case escaped == 0:
		return raw
	}
	return percentEncode(raw, length)
}

func percentEncode(raw string, length int) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, length)
	for i := range len(raw) {
		c := raw[i]
		if plain(c) {
			out = append(out, c)
			continue
		}
		out = append(out, '%', digits[c>>4], digits[c&15])
	}
	return string(out)
}

// plain reports whether c may stand in a name as it is.
func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '-' || c == '@'
}

// MaxRouteLength is the longest name of a route, in bytes.
const MaxRouteLength = 64

// ValidRoute reports whether name may name a route: 1 to MaxRouteLength bytes
// of [A-Za-z0-9._-]. Such a name is its own escaped form.
func ValidRoute(name string) bool {
	if name == "" || len(name) > MaxRouteLength {
		return false
	}
	for i := range len(name) {
		if !plain(name[i]) || name[i] == '@' {
			return false
		}
	}
	return true
}
