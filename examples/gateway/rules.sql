-- Rules for the gateway, in the table that `caddy rate-limit schema` creates.
-- A change is in force on every gateway as soon as it is committed; no reload.

-- shop-a has bought more: 200 orders at once, and 100 more a second.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
VALUES ('shop-a', 'create-order', 200, 100)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second, updated_at = now();

-- Everyone else's orders. The row is a default: each tenant has a bucket of its own.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
VALUES ('*', 'create-order', 10, 5)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second, updated_at = now();
