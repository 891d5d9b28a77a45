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

-- decide(reply, key, argument, n, cost, count) decides an entry whose first key
-- and first rule are numbered so, and returns an error that ends the script.
local function decide(reply, key, argument, n, cost, count)
  local states, granted = {}, count
  for i = 1, n do
    local state = {
      key = KEYS[key],
      capacity = tonumber(ARGV[argument + 1]),
      refill = tonumber(ARGV[argument + 2]),
      window = tonumber(ARGV[argument + 3]),
      algorithm = algorithm_of(tonumber(ARGV[argument])),
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
  reply[#reply + 1] = granted
  for _, state in ipairs(states) do
    if granted > 0 then
      state.algorithm.take(state, granted * cost)
    elseif count > 0 then
      state.algorithm.refuse(state)
    end
    local last = #reply
    reply[last + 1], reply[last + 2], reply[last + 3] = state.algorithm.report(state, cost)
  end
end

local reply, argument, key = {}, 2, 1

for _ = 1, tonumber(ARGV[1]) do
  local n, cost, count = tonumber(ARGV[argument]), tonumber(ARGV[argument + 1]), tonumber(ARGV[argument + 2])
  argument = argument + 3
  local granted, remaining, retry_after, reset_after
  if n == 1 and ARGV[argument] == '1' then
    granted, remaining, retry_after, reset_after = bucket_alone(KEYS[key], argument, cost, count)
  end
  if granted and ARGV[1] == '1' then
    return { granted, remaining, retry_after, reset_after }
  elseif granted then
    local last = #reply
    reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = granted, remaining, retry_after, reset_after
  else
    local err = decide(reply, key, argument, n, cost, count)
    if err then
      return err
    end
  end
  key, argument = key + n, argument + 4 * n
end

return reply
