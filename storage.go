package ratelimit

import (
	"context"

	"github.com/caddyserver/certmagic"

	"github.com/caddygate/ratelimit/regions"
	"github.com/caddygate/ratelimit/rulecache"
)

// ruleStorage keeps the last good rules in Caddy's storage, so that a gateway
// that starts while PostgreSQL is down has rules.
type ruleStorage struct {
	storage certmagic.Storage
	key     string
}

// Load returns what was saved, and an error that wraps fs.ErrNotExist if nothing was.
func (s ruleStorage) Load(ctx context.Context) ([]byte, error) { return s.storage.Load(ctx, s.key) }

// Save replaces what was saved.
func (s ruleStorage) Save(ctx context.Context, value []byte) error {
	return s.storage.Store(ctx, s.key, value)
}

// Interface guards
var (
	_ rulecache.Store = ruleStorage{}
	_ regions.Store   = ruleStorage{}
)
