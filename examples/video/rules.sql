-- Rules for the video API, in the table that `caddy rate-limit schema` creates.

-- Twenty users. Neither the table nor Redis holds their keys, key-1 to key-20,
-- but the SHA-256 of each. A user has a log: never more than the capacity in any
-- window of 10 s. Lists are cheap and searches are not.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, algorithm)
SELECT encode(sha256(convert_to('key-' || n, 'UTF8')), 'hex'), route, per_10s, per_10s / 10.0, 'sliding_window_log'
FROM generate_series(1, 20) AS n,
  (VALUES ('trending', 50), ('list', 200), ('search', 10)) AS quota (route, per_10s)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second,
  algorithm = EXCLUDED.algorithm, updated_at = now();

-- Guests, each address for itself. There may be millions, and a counter has two
-- numbers for each, however much it admits.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, algorithm)
SELECT '~guest', route, per_10s, per_10s / 10.0, 'sliding_window_counter'
FROM (VALUES ('trending', 10), ('list', 50), ('search', 2)) AS quota (route, per_10s)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second,
  algorithm = EXCLUDED.algorithm, updated_at = now();
