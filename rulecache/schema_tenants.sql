-- Which plan each tenant has, and who is blocked. The rules of a plan gold have the
-- tenant_id '~gold' in the table of rules. plan may be NULL. All of this may be run
-- again: a table that is there stays as it is.
CREATE TABLE IF NOT EXISTS @table (
  tenant_id VARCHAR(64) PRIMARY KEY CHECK (tenant_id <> '' AND tenant_id !~ '^[[:space:]~]|[[:space:]]$' AND tenant_id <> '*'),
  plan VARCHAR(64) CHECK (plan ~ '^[A-Za-z0-9._-]{1,63}$' AND plan NOT IN ('guest', 'blank') AND plan !~ '^(ip|sha256)-'),
  blocked BOOLEAN NOT NULL DEFAULT false);

