package redisbucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddygate/ratelimit/limit"
)

// Mode is what several addresses of a Redis are to each other.
type Mode string

// The modes.
const (
	// ModeCluster: the URLs are servers of one Redis Cluster, some or all of them.
	ModeCluster Mode = "cluster"
	// ModeSentinel: the URLs are sentinels, which name the master.
	ModeSentinel Mode = "sentinel"

	modeSingle Mode = ""
)

// maxMasterLength bounds the name of a master, in bytes.
const maxMasterLength = 256

// mode returns the Mode, or what the number of URLs makes of none.
func (o Options) mode() Mode {
	if o.Mode == modeSingle && len(o.URLs) > 1 {
		return ModeCluster
	}
	return o.Mode
}

// addresses reads the URLs. An error tells which one it is about, counted from 0
// as in the configuration, unless it is the only one.
func (o Options) addresses() ([]address, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("redis url is missing")
	}
	defaultPort := redisPort
	if o.mode() == ModeSentinel {
		defaultPort = sentinelPort
	}
	list := make([]address, len(o.URLs))
	for i, text := range o.URLs {
		var err error
		if list[i], err = parseURL(text, defaultPort); err != nil {
			if len(o.URLs) > 1 {
				return nil, fmt.Errorf("urls[%d]: %w", i, err)
			}
			return nil, err
		}
	}
	return list, nil
}

// checkTopology reports what does not fit together.
func (o Options) checkTopology(seeds []address) error {
	switch o.Mode {
	case modeSingle, ModeCluster, ModeSentinel:
	default:
		return fmt.Errorf("redis mode: %w", limit.UnknownWord("word", string(o.Mode), string(ModeCluster), string(ModeSentinel)))
	}
	if err := o.checkSentinel(); err != nil {
		return err
	}
	if o.mode() == modeSingle {
		return nil
	}
	for i, seed := range seeds {
		if err := o.checkSeed(seeds, i, seed); err != nil {
			return fmt.Errorf("urls[%d]: %w", i, err)
		}
	}
	return nil
}

// checkSentinel reports what is wrong with the settings for sentinels.
func (o Options) checkSentinel() error {
	const without = " is only for mode sentinel"
	switch {
	case o.Mode == ModeSentinel && o.Master == "":
		return errors.New("redis master: mode sentinel needs the name that the sentinels have for the master, such as mymaster")
	case o.Mode == ModeSentinel && (len(o.Master) > maxMasterLength || strings.ContainsFunc(o.Master, unprintable)):
		return fmt.Errorf("redis master: the name must have up to %d printable characters without spaces", maxMasterLength)
	case o.Mode == ModeSentinel && o.SentinelUser != "" && o.SentinelPassword == "":
		return errors.New("redis sentinel_password: a sentinel user needs one")
	case o.Mode == ModeSentinel:
		return nil
	case o.Master != "":
		return errors.New("redis master" + without)
	case o.SentinelUser != "":
		return errors.New("redis sentinel_username (in a Caddyfile sentinel_user)" + without)
	case o.SentinelPassword != "":
		return errors.New("redis sentinel_password" + without)
	}
	return nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// checkSeed reports what is wrong with one of several addresses.
func (o Options) checkSeed(seeds []address, i int, seed address) error {
	first := seeds[0]
	switch {
	case seed.network == "unix":
		return fmt.Errorf("redis url: mode %s needs host and port, not a unix socket", o.mode())
	case o.mode() == ModeCluster && seed.db != 0:
		return errors.New("redis url: a cluster has no databases but 0")
	case seed.user != first.user || seed.password != first.password:
		return errors.New("redis url: its user and password must be those of the first url")
	case seed.db != first.db:
		return errors.New("redis url: its database must be that of the first url")
	case seed.tls != first.tls || seed.skipVerify != first.skipVerify:
		return errors.New("redis url: its scheme and skip_verify must be those of the first url")
	}
	if j := slices.IndexFunc(seeds[:i], func(other address) bool { return other.host == seed.host }); j >= 0 {
		return fmt.Errorf("redis url: its host and port are those of urls[%d] already", j)
	}
	return nil
}
