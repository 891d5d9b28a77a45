-- Token bucket: `capacity` tokens at once, refilled at `refill` per second.
--
-- KEYS: a hash of tokens (the balance, a fraction) and ts (the ms of Redis'
-- clock at which it held). No key is a full bucket.
-- ARGV of its rule: 1 capacity refill_per_second window_ms

-- bucket_balance(b, at) is what the bucket holds at a time not before its stamp.
local function bucket_balance(b, at)
  if at <= b.ts then
    return b.tokens
  end
  return math.min(b.capacity, b.tokens + (at - b.ts) * b.refill / 1000)
end

local function bucket_read(b)
  local raw = redis.pcall('HMGET', b.key, 'tokens', 'ts')
  if raw.err then
    local err = recover(b, raw)
    if err then
      return err
    end
  end
  local tokens, ts = finite(raw[1]), finite(raw[2])
  b.exists = b.exists or raw[1] or raw[2]
  if not tokens or not ts or tokens < 0 then
    b.broken = b.exists
    tokens, ts = b.capacity, now
  elseif ts > now + AHEAD then
    b.broken = true
    ts = now
  end
  b.tokens, b.ts = math.min(b.capacity, tokens), ts
end

local function bucket_room(b)
  return bucket_balance(b, now) + TINY
end

-- bucket_wait(b, need) is the ms until the balance is need. The last step asks
-- the sum that will be made then, which may round another way than this one.
local function bucket_wait(b, need)
  if bucket_balance(b, now) >= need - TINY then
    return 0
  end
  local wait = math.ceil((need - b.tokens) * 1000 / b.refill - (now - b.ts) - 1e-6)
  if bucket_balance(b, now + wait) < need - TINY then
    wait = wait + 1
  end
  return wait
end

local function bucket_store(b)
  clear(b)
  redis.call('HSET', b.key, 'tokens', string.format('%.17g', b.tokens), 'ts', whole(b.ts))
end

local function bucket_take(b, tokens)
  b.tokens = math.max(0, bucket_balance(b, now) - tokens)
  b.ts = math.max(b.ts, now)
  bucket_store(b)
  local full = bucket_wait(b, b.capacity)
  keep(b, math.max(b.window, full), full)
end

local function bucket_refuse(b)
  if b.broken then
    bucket_store(b)
  end
  if b.exists then
    local full = bucket_wait(b, b.capacity)
    keep(b, full, full)
  end
end

local function bucket_report(b, cost)
  local left = math.min(b.capacity, math.floor(bucket_balance(b, now) + TINY))
  return left, cost > b.capacity and -1 or bucket_wait(b, cost), bucket_wait(b, b.capacity)
end

local token_bucket = {
  read = bucket_read, room = bucket_room, take = bucket_take, refuse = bucket_refuse, report = bucket_report,
}
