package ratelimit

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"sync"

	"go.uber.org/zap"
)

const (
	defaultIPv4Prefix = 32
	defaultIPv6Prefix = 64

	// guestName begins the name of a guest's bucket. No tenant's escaped name has
	// a tilde in it.
	guestName = "~ip-"

	// unknownGuest is the one bucket of all whose address is not known, as on a
	// Unix socket.
	unknownGuest = guestName + "unknown"
)

// guestSource names guests by a hash of their network, which nobody can turn
// back into an address without the secret.
type guestSource struct {
	secret                 []byte
	ipv4Prefix, ipv6Prefix int
	logger                 *zap.Logger
	warned                 sync.Once
}

// minGuestSecret is in bytes: what is shorter can be tried out.
const minGuestSecret = 16

// checkGuestSecret returns an error unless the secret is long enough, or there is none.
func checkGuestSecret(field, secret string) error {
	if secret != "" && len(secret) < minGuestSecret {
		return fmt.Errorf("%s: it is %d bytes long, and so short that it can be guessed: allowed are %d or more, such as what `openssl rand -hex 32` prints",
			field, len(secret), minGuestSecret)
	}
	return nil
}

// processSecret hashes guests where nobody else has to find the same bucket.
var processSecret = sync.OnceValue(func() []byte {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
})

// of returns the name of the guest's bucket.
func (s *guestSource) of(r *http.Request) string {
	return s.name(clientIP(r))
}

// name returns the name of the bucket of a guest with an address.
func (s *guestSource) name(text string) string {
	network, ok := networkOf(text, s.ipv4Prefix, s.ipv6Prefix)
	if !ok {
		s.warned.Do(func() {
			s.logger.Warn("a guest has no IP address, all such guests share one bucket", zap.String("address", text))
		})
		return unknownGuest
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(network.String()))
	return guestName + hex.EncodeToString(mac.Sum(nil))
}

// networkOf returns the network that an address is in, the same for every
// spelling of it.
func networkOf(text string, ipv4Prefix, ipv6Prefix int) (netip.Prefix, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	address = address.Unmap().WithZone("")
	bits := ipv6Prefix
	if address.Is4() {
		bits = ipv4Prefix
	}
	network, err := address.Prefix(bits)
	return network, err == nil
}
