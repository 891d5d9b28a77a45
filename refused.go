package ratelimit

import (
	"math/rand/v2"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// refusedTrace is where every refusal comes from.
const refusedTrace = "ratelimit.(*answer).refuse (respond.go)"

// refusedError is the error of a refused request. It is what caddyhttp.Error
// makes, which looks its caller up and formats it each time: under a flood that
// would be a third of what a refusal costs, and always the same text.
func refusedError() caddyhttp.HandlerError {
	return caddyhttp.HandlerError{
		ID:         errorID(rand.Uint64()), //nolint:gosec // it names a line of a log, and is no secret
		StatusCode: http.StatusTooManyRequests,
		Err:        errExceeded,
		Trace:      refusedTrace,
	}
}

// errorID makes an identifier like those of Caddy's other errors of a random
// number: nine letters and digits that no font confuses.
func errorID(random uint64) string {
	const dictionary = "abcdefghijkmnpqrstuvwxyz23456789"
	var id [9]byte
	for i := range id {
		id[i] = dictionary[random%uint64(len(dictionary))]
		random /= uint64(len(dictionary))
	}
	return string(id[:])
}
