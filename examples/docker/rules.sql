-- shop-a has a plan of its own; everybody else, guests included, gets less.
INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES
  ('shop-a', '*', 200, 100),
  ('*',      '*', 20, 10)
ON CONFLICT (tenant_id, route_id) DO NOTHING;
