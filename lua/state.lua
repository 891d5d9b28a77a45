-- What the algorithms share on the long way: how the state of one key is read
-- and kept.
--
-- KEYS and ARGV: none of its own. A state is a table that take.lua fills with
-- key, capacity, refill (per second) and window (ms), and that an algorithm's
-- read adds to:
--   exists   the key holds something, so it must have a TTL
--   foreign  the key holds another type: it reads as full, and a write deletes it
--   broken   a write is due even where nothing is taken

local floor, ceil, min, max, format = math.floor, math.ceil, math.min, math.max, string.format

local now_us = time[1] * 1000000 + time[2]

-- A stamp up to this far ahead is another master's clock and is kept; one
-- further ahead is a clock that was wrong, and counts as now.
local AHEAD = 2000

local function whole(number)
  return format('%.0f', number)
end

-- finite(text) is the number in a stored field, or nil where it is none that
-- can be counted with (missing, not a number, nan, inf).
local function finite(text)
  local number = tonumber(text)
  if number and number - number == 0 then
    return number
  end
end

-- recover(state, reply) takes a reply that is an error: another type under the
-- key reads as full, any other error is returned and ends the script.
local function recover(state, reply)
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return reply
  end
  state.exists, state.foreign, state.broken = true, true, true
end

-- clear(state) makes way for a write over another type.
local function clear(state)
  if state.foreign then
    call('DEL', state.key)
    state.foreign = false
  end
  state.exists = true
end

-- keep(key, window, least, full) renews a TTL that is below least. No key dies
-- before it is full, which it is in full ms.
local function keep(key, window, least, full)
  if call('PTTL', key) < least then
    call('PEXPIRE', key, whole(max(2 * window, full, 1000)))
  end
end
