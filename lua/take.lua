-- Takes tokens, entry by entry, each from all of its keys or from none.
--
-- KEYS: the keys of all entries, in order, each with its algorithm's suffix.
-- ARGV: one for each entry, because each argument costs Redis a tenth of what a
-- command does. It is numbers as little-endian doubles:
--   n cost count                                    its keys, what one unit costs, the units wanted
--   algorithm capacity refill_per_second window_ms  n times; 1 bucket, 2 log, 3 counter
--                                                   5 places: limit process number
-- Where n is below 0, its keys are as many, and each has a fifth number, a cost of its
-- own in place of the entry's. Only such an entry may have a key of places, or one of a
-- ban, which is that of the key before it:
--   6 length_ms settled unit cost                   settled: 1 where settlements begin it
-- An entry is granted the largest whole number up to count that every key of it
-- can give; count 0 looks and writes nothing, not even repairs. Count -1, of such an
-- entry alone, settles what was granted cost ms ago: each key's cost is then what is
-- taken beyond that, or below 0 given back, and that of a ban all that it came to.
-- Reply: integers only, for each entry
--   granted                                         of a settlement: what a debt has no room for
--   remaining retry_after_ms reset_after_ms         n times, as they are after the entry
-- retry_after_ms is the wait for one more unit: 0 if it is there, -1 if it
-- costs more than the capacity. Of a ban it is
--   rest_ms begun reset_after_ms                    begun: 1 where this entry began it
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
    --> places.lua
    --> ban.lua
    --> long_way.lua
  end)()
  local err = decide(argv[entry])
  if err then
    return err
  end
  entry = entry + 1
end
