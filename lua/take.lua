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

-- decide(n, cost, count) decides the next entry, of n keys, and returns an error
-- that ends the script.
local function decide(n, cost, count)
  local states, granted = {}, count
  for i = 1, n do
    local state = {
      key = keys[key],
      capacity = argv[argument + 1] + 0,
      refill = argv[argument + 2] + 0,
      window = argv[argument + 3] + 0,
      algorithm = algorithm_of(argv[argument] + 0),
    }
    local err = state.algorithm.read(state)
    if err then
      return err
    end
    granted = min(granted, floor(state.algorithm.room(state) / cost))
    states[i] = state
    key, argument = key + 1, argument + 4
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

for _ = 1, entries do
  argument = argument + 3
  local err = decide(argv[argument - 3] + 0, argv[argument - 2] + 0, argv[argument - 1] + 0)
  if err then
    return err
  end
end

return reply
