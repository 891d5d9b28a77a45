-- One notification for each statement that changes rows. It says only that
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
