-- The rules of the rate limiter. tenant_id and route_id may be '*', and
-- tenant_id '~guest', for requests without a tenant. algorithm, mode, prefetch,
-- shards and concurrent may be left out; NULL in them means that the gateway's configuration
-- counts. All of this may be run again: a table that is there stays as it is.
CREATE TABLE IF NOT EXISTS @table (
  id BIGSERIAL PRIMARY KEY,
  tenant_id VARCHAR(64) NOT NULL CHECK (tenant_id <> '' AND tenant_id !~ '^[[:space:]]|[[:space:]]$'),
  route_id VARCHAR(64) NOT NULL CHECK (route_id = '*' OR route_id ~ '^[A-Za-z0-9._-]+$'),
  capacity INT NOT NULL CHECK (capacity > 0),
  refill_per_second DOUBLE PRECISION NOT NULL
    CHECK (refill_per_second > 0 AND refill_per_second < 'Infinity'),
  algorithm VARCHAR(32)
    CHECK (algorithm IN ('token_bucket', 'sliding_window_log', 'sliding_window_counter')),
  mode VARCHAR(16) CHECK (mode IN ('enforce', 'shadow', 'unlimited', 'deny')),
  prefetch VARCHAR(6) CHECK (prefetch ~ '^(auto|100000|[0-9]{1,5})$'),
  shards SMALLINT CHECK (shards BETWEEN 1 AND 16),
  concurrent INT CHECK (concurrent BETWEEN 1 AND 10000),
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  UNIQUE (tenant_id, route_id));

