-- What decides an entry of any kind: with functions, tables and repairs.
--
-- KEYS and ARGV: as in take.lua.

-- The algorithms by their number, each made when the first key asks for it.
local algorithms = { token_bucket, sliding_window_log, sliding_window_counter, [5] = places, [6] = ban }

local function algorithm_of(number)
  local algorithm = algorithms[number]
  if type(algorithm) == 'function' then
    algorithm = algorithm()
    algorithms[number] = algorithm
  end
  return algorithm
end

-- tell(state, count, granted) takes what was granted, or settles, or leaves a state
-- that is in order, and adds to the reply how it is then.
local function tell(state, count, granted)
  local by, cost = state.by, state.cost
  if count ~= 0 and state.broken then
    by.repair(state)
  end
  if granted > 0 then
    by.take(state, granted * cost)
  end
  if by.tell then
    return by.tell(state, count, granted)
  end
  local full = by.full(state)
  if count ~= 0 and state.exists then
    keep(state.key, state.window, granted > 0 and max(state.window, full) or full, full)
  end
  cost = count < 0 and 1 or cost
  reply[last + 1] = min(state.capacity, max(0, floor(by.room(state))))
  reply[last + 2] = cost > state.capacity and -1 or by.wait(state, cost)
  reply[last + 3] = full
  last = last + 3
end

-- It decides the next entry and returns an error that ends the script.
return function(packed)
  local n, cost, count, at = numbers('<ddd', packed)
  local states, granted, priced = {}, count, n < 0
  if priced then
    n = -n
  end
  for i = 1, n do
    local state, number = { key = keys[key] }, nil
    number, state.capacity, state.refill, state.window, at = numbers('<dddd', packed, at)
    state.cost, state.of = cost, states[i - 1]
    if priced then
      state.cost, at = numbers('<d', packed, at)
      if number == 5 and state.cost > 1 and count < 0 then
        state.others = { numbers('<' .. string.rep('d', state.cost - 1), packed, at) }
        at = table.remove(state.others)
      end
    end
    state.by = algorithm_of(number)
    local err = state.by.read(state)
    if err then
      return err
    end
    if count >= 0 then
      granted = min(granted, floor(state.by.room(state) / state.cost))
    end
    states[i] = state
    key = key + 1
  end
  granted = max(granted, 0)
  last = last + 1
  local at_granted = last
  reply[last] = granted
  for i = 1, n do
    if count < 0 then
      reply[at_granted] = reply[at_granted] + states[i].by.settle(states[i], states[i].cost, cost)
    end
    tell(states[i], count, granted)
  end
end
