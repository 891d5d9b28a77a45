-- Takes tokens, entry by entry, each from all of its keys or from none.
--
-- KEYS: the keys of all entries, in order, each with its algorithm's suffix.
-- ARGV: the number of entries, then for each entry
--   n cost count                                    its keys, what one unit costs, the units wanted
--   algorithm capacity refill_per_second window_ms  n times; 1 bucket, 2 log, 3 counter
-- An entry is granted the largest whole number up to count that every key of it
-- can give; count 0 looks and writes nothing, not even repairs.
-- Reply: integers only, for each entry
--   granted
--   remaining retry_after_ms reset_after_ms         n times, as they are after the entry
-- retry_after_ms is the wait for one more unit: 0 if it is there, -1 if it
-- costs more than the capacity.

local algorithms = { token_bucket, sliding_window_log, sliding_window_counter }

local reply, argument, key = {}, 2, 1

for _ = 1, tonumber(ARGV[1]) do
  local n, cost, count = tonumber(ARGV[argument]), tonumber(ARGV[argument + 1]), tonumber(ARGV[argument + 2])
  argument = argument + 3
  local states, granted = {}, count
  for i = 1, n do
    local algorithm = algorithms[tonumber(ARGV[argument])]
    local state = {
      key = KEYS[key],
      capacity = tonumber(ARGV[argument + 1]),
      refill = tonumber(ARGV[argument + 2]),
      window = tonumber(ARGV[argument + 3]),
      algorithm = algorithm,
    }
    local err = algorithm.read(state)
    if err then
      return err
    end
    granted = math.min(granted, math.floor(algorithm.room(state) / cost))
    states[i] = state
    key, argument = key + 1, argument + 4
  end
  granted = math.max(granted, 0)
  reply[#reply + 1] = granted
  for i = 1, n do
    local state = states[i]
    if granted > 0 then
      state.algorithm.take(state, granted * cost)
    elseif count > 0 then
      state.algorithm.refuse(state)
    end
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = state.algorithm.report(state, cost)
  end
end

return reply
