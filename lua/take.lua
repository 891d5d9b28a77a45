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

-- The algorithms by their number, each made when the first key asks for it.
local algorithms

local function algorithm_of(number)
  algorithms = algorithms or { token_bucket, sliding_window_log, sliding_window_counter }
  local algorithm = algorithms[number]
  if type(algorithm) == 'function' then
    algorithm = algorithm()
    algorithms[number] = algorithm
  end
  return algorithm
end

-- decide(packed) decides the next entry and returns an error that ends the script.
local function decide(packed)
  local n, cost, count, at = numbers('<ddd', packed)
  local states, granted = {}, count
  for i = 1, n do
    local state, number = { key = keys[key] }, nil
    number, state.capacity, state.refill, state.window, at = numbers('<dddd', packed, at)
    state.algorithm = algorithm_of(number)
    local err = state.algorithm.read(state)
    if err then
      return err
    end
    granted = min(granted, floor(state.algorithm.room(state) / cost))
    states[i] = state
    key = key + 1
  end
  granted = max(granted, 0)
  last = last + 1
  reply[last] = granted
  for _, state in ipairs(states) do
    if granted > 0 then
      state.algorithm.take(state, granted * cost)
    elseif count > 0 then
      state.algorithm.refuse(state)
    end
    reply[last + 1], reply[last + 2], reply[last + 3] = state.algorithm.report(state, cost)
    last = last + 3
  end
end

-- The entries that one_bucket.lua has left.
reply = reply or {}

for i = entry, entries do
  local err = decide(argv[i])
  if err then
    return err
  end
end

return reply
