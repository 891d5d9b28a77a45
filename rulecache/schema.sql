-- The rules of the rate limiter. tenant_id and route_id may be '*', and
-- tenant_id '~guest', for requests without a tenant. algorithm, mode, prefetch
-- and shards may be left out; NULL in them means that the gateway's configuration
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
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  UNIQUE (tenant_id, route_id));

-- One notification for each statement that changes rules. It says only that
-- something changed: the gateways read what. They look for this trigger by its
-- name, and poll the table less often where it is enabled.
CREATE OR REPLACE FUNCTION @function() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify(TG_ARGV[0], '');
  RETURN NULL;
END
$$;

BEGIN;
DROP TRIGGER IF EXISTS rate_limit_notify ON @table;
CREATE TRIGGER rate_limit_notify
  AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON @table
  FOR EACH STATEMENT EXECUTE FUNCTION @function(@channel);
COMMIT;
