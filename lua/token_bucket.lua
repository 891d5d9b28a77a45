-- Token bucket: `capacity` tokens at once, refilled at `refill` per second.
--
-- KEYS: a hash of tokens (the balance, a fraction) and ts (the ms of Redis'
-- clock at which it held). No key is a full bucket.
-- ARGV of its rule: 1 capacity refill_per_second window_ms
--
-- short_way.lua has the same once more, for buckets in good order.

-- bucket_wait(tokens, since, refill, need) is the ms until a balance that held
-- since ms ago is need. The last step asks the sum that will be made then,
-- which may round another way than the first.
local function bucket_wait(tokens, since, refill, need)
  if tokens + max(since, 0) * refill / 1000 >= need - TINY then
    return 0
  end
  local wait = ceil((need - tokens) * 1000 / refill - since - 1e-6)
  if tokens + (since + wait) * refill / 1000 < need - TINY then
    wait = wait + 1
  end
  return wait
end

local function token_bucket()
  local function read(b)
    local raw = pcall('HMGET', b.key, 'tokens', 'ts')
    if raw.err then
      local err = recover(b, raw)
      if err then
        return err
      end
    end
    local tokens, ts = finite(raw[1]), finite(raw[2])
    b.exists = b.exists or raw[1] or raw[2]
    if not tokens or not ts then
      b.broken = b.exists
      tokens, ts = b.capacity, now
    elseif ts > now + AHEAD then
      b.broken = true
      ts = now
    end
    b.tokens, b.ts = max(-b.capacity, min(b.capacity, tokens)), ts
  end

  local function balance(b)
    return min(b.capacity, b.tokens + max(now - b.ts, 0) * b.refill / 1000)
  end

  local function room(b)
    return balance(b) + TINY
  end

  local function store(b)
    clear(b)
    call('HSET', b.key, 'tokens', format('%.17g', b.tokens), 'ts', whole(b.ts))
  end

  local function take(b, tokens)
    b.tokens = max(0, balance(b) - tokens)
    b.ts = max(b.ts, now)
    store(b)
  end

  -- settle(b, more) takes more than was taken, down to a debt of the capacity, or
  -- gives back, and returns what the debt has no room for.
  local function settle(b, more)
    local left = balance(b) - more
    local cut = max(0, ceil(-b.capacity - left - TINY))
    if b.exists or more > cut then
      b.tokens, b.ts = min(b.capacity, left + cut), max(b.ts, now)
      store(b)
    end
    return cut
  end

  local function wait(b, need)
    return bucket_wait(b.tokens, now - b.ts, b.refill, need)
  end

  local function full(b)
    return wait(b, b.capacity)
  end

  return { read = read, room = room, take = take, settle = settle, repair = store, wait = wait, full = full }
end
