// Package ratelimit is a placeholder until the root lands.
package ratelimit

import (
	_ "github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/jackc/pgx/v5"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/sony/gobreaker/v2"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	_ "go.uber.org/zap"
)
