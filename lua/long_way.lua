-- What decides an entry of any kind: with functions, tables and repairs.
--
-- KEYS and ARGV: as in take.lua.

-- The algorithms by their number, each made when the first key asks for it.
local algorithms = { token_bucket, sliding_window_log, sliding_window_counter }

local function algorithm_of(number)
  local algorithm = algorithms[number]
  if type(algorithm) == 'function' then
    algorithm = algorithm()
    algorithms[number] = algorithm
  end
  return algorithm
end

-- tell(state, cost, count, granted) takes what was granted, or leaves a state that
-- is in order, and adds to the reply how it is then.
local function tell(state, cost, count, granted)
  local by = state.by
  if count > 0 then
    if state.broken then
      by.repair(state)
    end
    if granted > 0 then
      by.take(state, granted * cost)
    end
  end
  local full = by.full(state)
  if count > 0 and state.exists then
    keep(state.key, state.window, granted > 0 and max(state.window, full) or full, full)
  end
  reply[last + 1] = min(state.capacity, max(0, floor(by.room(state))))
  reply[last + 2] = cost > state.capacity and -1 or by.wait(state, cost)
  reply[last + 3] = full
  last = last + 3
end

-- It decides the next entry and returns an error that ends the script.
return function(packed)
  local n, cost, count, at = numbers('<ddd', packed)
  local states, granted = {}, count
  for i = 1, n do
    local state, number = { key = keys[key] }, nil
    number, state.capacity, state.refill, state.window, at = numbers('<dddd', packed, at)
    state.by = algorithm_of(number)
    local err = state.by.read(state)
    if err then
      return err
    end
    granted = min(granted, floor(state.by.room(state) / cost))
    states[i] = state
    key = key + 1
  end
  granted = max(granted, 0)
  last = last + 1
  reply[last] = granted
  for i = 1, n do
    tell(states[i], cost, count, granted)
  end
end
