-- Entries of one token bucket in good order, which most are, in straight lines:
-- no function, no table, no number read or written that is not needed. At the
-- first that is of another kind, or whose state is broken or ahead of the clock,
-- this ends, having changed nothing of it: the long way of token_bucket.lua goes
-- on from there, and decides all that this does in the same way.
--
-- KEYS and ARGV: as in take.lua, with 1 key and algorithm 1.

-- The last entry's argument, and what it says: most are like the one before. So
-- are balances that were just made, and TTLs; to write a number is dear.
local packed, cost, count, capacity, refill, window
local stored, stored_text, ttl, ttl_text

while entry <= entries do
  if argv[entry] ~= packed then
    local n, kind
    n, cost, count, kind, capacity, refill, window = numbers('<ddddddd', argv[entry])
    if n ~= 1 or kind ~= 1 then
      break
    end
    packed = argv[entry]
  end
  local name = keys[key]
  local raw = pcall('HMGET', name, 'tokens', 'ts')
  local tokens, ts, exists = raw[1], raw[2], true
  if tokens == false and ts == false then
    tokens, ts, exists = capacity, now, false
  else
    tokens, ts = tonumber(tokens), tonumber(ts)
    -- Not numbers, or not finite ones, or from a time that has not come: the long way.
    if not tokens or not ts or tokens < 0 or ts > now or tokens - tokens ~= ts - ts then
      break
    elseif tokens > capacity then
      tokens = capacity
    end
  end

  local since = now - ts
  local balance = tokens + since * refill / 1000
  if balance > capacity then
    balance = capacity
  end
  local granted, least = 0, 0
  if count > 0 and balance + TINY >= cost then
    granted = (balance + TINY) / cost
    granted = granted < count and granted - granted % 1 or count
    tokens, since = balance - granted * cost, 0
    if tokens < 0 then
      tokens = 0
    end
    balance, least = tokens, window
    if tokens ~= stored then
      -- Redis writes a number as %.17g, so that no digit of a fraction is lost.
      stored, stored_text = tokens, tokens % 1 == 0 and format('%d', tokens) or tokens
    end
    call('HSET', name, 'tokens', stored_text, 'ts', stamp)
  end

  -- The waits, as bucket_wait has them.
  local full, retry = 0, 0
  if balance < capacity - TINY then
    full = (capacity - tokens) * 1000 / refill - since - 1e-6
    full = full + -full % 1
    if tokens + (since + full) * refill / 1000 < capacity - TINY then
      full = full + 1
    end
    if cost <= capacity and balance < cost - TINY then
      retry = (cost - tokens) * 1000 / refill - since - 1e-6
      retry = retry + -retry % 1
      if tokens + (since + retry) * refill / 1000 < cost - TINY then
        retry = retry + 1
      end
    end
  end
  if cost > capacity then
    retry = -1
  end

  -- The TTL, as keep has it.
  if full > least then
    least = full
  end
  if granted > 0 and not exists or exists and count > 0 and call('PTTL', name) < least then
    local long = max(2 * window, full, 1000)
    if long ~= ttl then
      ttl, ttl_text = long, format('%d', long)
    end
    call('PEXPIRE', name, ttl_text)
  end

  balance = balance + TINY
  balance = balance < capacity and balance - balance % 1 or capacity
  if not reply then
    return { granted, balance, retry, full }
  end
  reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = granted, balance, retry, full
  last, entry, key = last + 4, entry + 1, key + 1
end

if entry > entries then
  return reply
end
