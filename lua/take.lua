-- Takes tokens, entry by entry, each from all of its keys or from none.
--
-- KEYS: the keys of all entries, in order, each with its algorithm's suffix.
-- ARGV: one for each entry, because each argument costs Redis a tenth of what a
-- command does. It is numbers as little-endian doubles:
--   n cost count                                    its keys, what one unit costs, the units wanted
--   algorithm capacity refill_per_second window_ms  n times; 1 bucket, 2 log, 3 counter
-- An entry is granted the largest whole number up to count that every key of it
-- can give; count 0 looks and writes nothing, not even repairs.
-- Reply: integers only, for each entry
--   granted
--   remaining retry_after_ms reset_after_ms         n times, as they are after the entry
-- retry_after_ms is the wait for one more unit: 0 if it is there, -1 if it
-- costs more than the capacity.
--
-- A line that begins with an arrow stands for a file.

--> clock.lua

-- What the short way writes, as texts: the last number and TTL, and the time.
local stored, stored_text, ttl, ttl_text, stamp

-- The long way, made where it is needed first.
local decide

while true do
  --> short_way.lua
  if entry > entries then
    return reply
  end
  reply = reply or {}
  decide = decide or (function()
    --> state.lua
    --> token_bucket.lua
    --> sliding_window_log.lua
    --> sliding_window_counter.lua
    --> long_way.lua
  end)()
  local err = decide(argv[entry])
  if err then
    return err
  end
  entry = entry + 1
end
