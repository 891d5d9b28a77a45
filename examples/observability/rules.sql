INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES
	('shop-a', 'api', 40, 20),
	('shop-b', 'api', 40, 20),
	('shop-c', 'api', 40, 20);
