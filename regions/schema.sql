-- How limits are shared between regions. It may be run again: what is there stays.

-- The regions. A gateway adds its own. safe is the least that a region has of
-- every limit, in millionths, and what its gateways give when they have not
-- reached this database for too long: lower it only while all of them do.
CREATE TABLE IF NOT EXISTS @region (
  name VARCHAR(64) PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9._-]+$'),
  slot SMALLINT NOT NULL UNIQUE CHECK (slot BETWEEN 1 AND 16),
  safe INT NOT NULL DEFAULT 50000 CHECK (safe BETWEEN 10000 AND 990000),
  joined_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp());

CREATE OR REPLACE FUNCTION @safe_function() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_WHEN = 'BEFORE' THEN
    LOCK TABLE @region IN SHARE ROW EXCLUSIVE MODE;
  ELSIF (SELECT sum(safe) FROM @region) > 992000 THEN
    RAISE EXCEPTION 'the safe shares of all regions sum to more than 992000 millionths' USING ERRCODE = 'check_violation';
  ELSIF TG_OP = 'UPDATE' THEN -- else gateways would not read it before shares move
    UPDATE @books SET version = GREATEST(version + 1, (EXTRACT(epoch FROM clock_timestamp()) * 1000000)::BIGINT);
  END IF;
  RETURN NULL;
END
$$;
DROP TRIGGER IF EXISTS rate_limit_safe_lock ON @region;
CREATE TRIGGER rate_limit_safe_lock BEFORE INSERT OR UPDATE ON @region
  FOR EACH STATEMENT EXECUTE FUNCTION @safe_function();
DROP TRIGGER IF EXISTS rate_limit_safe_sum ON @region;
CREATE TRIGGER rate_limit_safe_sum AFTER INSERT OR UPDATE ON @region
  FOR EACH STATEMENT EXECUTE FUNCTION @safe_function();

-- The number of changes so far, and when shares were reckoned last. One row.
CREATE TABLE IF NOT EXISTS @books (
  one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
  version BIGINT NOT NULL DEFAULT 1 CHECK (version > 0),
  reckoned_at TIMESTAMPTZ);
INSERT INTO @books DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Whether a row of shares is sound: no share is below 0 or above what is held,
-- and what is held sums to 992000 millionths at most. The other 8000 are for
-- regions that have no share yet: 500 for each of 16.
CREATE OR REPLACE FUNCTION @sound(regions TEXT[], targets INT[], shares INT[], held INT[])
RETURNS BOOLEAN LANGUAGE sql IMMUTABLE AS $$
  SELECT cardinality(regions) <= 64
    AND cardinality(targets) = cardinality(regions)
    AND cardinality(shares) = cardinality(regions)
    AND cardinality(held) = cardinality(regions)
    AND coalesce(bool_and(coalesce(p.r <> '' AND p.t >= 0 AND p.s >= 0 AND p.s <= p.h, FALSE)), TRUE)
    AND count(DISTINCT p.r) = cardinality(regions)
    AND coalesce(sum(p.t::BIGINT), 0) <= 992000
    AND coalesce(sum(p.h::BIGINT), 0) <= 992000
  FROM unnest(regions, targets, shares, held) AS p(r, t, s, h)
$$;

-- How each limit is shared, all regions in one row; ('*', '*') is for limits that
-- have no row of their own. A region's gateways give share. held is the most that
-- one of them may still be giving. target is where share is on its way to.
CREATE TABLE IF NOT EXISTS @share (
  tenant_id TEXT NOT NULL, route_id TEXT NOT NULL,
  version BIGINT NOT NULL,
  regions TEXT[] NOT NULL, targets INT[] NOT NULL, shares INT[] NOT NULL, held INT[] NOT NULL,
  PRIMARY KEY (tenant_id, route_id),
  CONSTRAINT rate_limit_region_share_sum CHECK (@sound(regions, targets, shares, held)));

-- The gateways: which version each goes by, and when it was seen, by the clock
-- of this database.
CREATE TABLE IF NOT EXISTS @gateway (
  id TEXT PRIMARY KEY, region TEXT NOT NULL,
  acked BIGINT NOT NULL, valid_ms BIGINT NOT NULL CHECK (valid_ms > 0),
  seen_at TIMESTAMPTZ NOT NULL);

-- What each region asked of limits, in units of cost; older demand counts less.
CREATE TABLE IF NOT EXISTS @demand (
  region TEXT NOT NULL, tenant_id TEXT NOT NULL, route_id TEXT NOT NULL,
  units DOUBLE PRECISION NOT NULL CHECK (units >= 0 AND units < 'Infinity'),
  PRIMARY KEY (region, tenant_id, route_id));
