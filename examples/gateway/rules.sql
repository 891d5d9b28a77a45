-- Rules for the gateway, in the table that `caddy rate-limit schema` creates.
-- A change is in force on every gateway within a second; no reload.

-- shop-a has bought more: on each route 200 at once, and 100 more a second.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
VALUES ('shop-a', '*', 200, 100)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second, updated_at = now();

-- Everyone else's orders: 10 at once, and 5 more a second. The row is a default:
-- each tenant, or guest, has a bucket of its own.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
VALUES ('*', 'create-order', 10, 5)
ON CONFLICT (tenant_id, route_id) DO UPDATE
SET capacity = EXCLUDED.capacity, refill_per_second = EXCLUDED.refill_per_second, updated_at = now();
