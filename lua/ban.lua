-- Ban: whoever empties the bucket before it stays out until the time is over.
--
-- KEYS: a hash of until (the ms of Redis' clock at which a ban ends), and, where
-- settlements begin it, tokens and ts: a second balance of the bucket's rule, from
-- which only settlements take. So requests under way ban nobody. No key is no ban.
-- ARGV of it: 6 length_ms settled unit cost, see take.lua

local function ban()
  -- A refusal that is due to requests under way is over soon.
  local SOON = 1000

  local function ban_read(b)
    b.length, b.settled, b.unit = b.capacity, b.refill == 1, b.window
    b.capacity, b.refill, b.window = b.of.capacity, b.of.refill, b.of.window
    local raw = pcall('HMGET', b.key, 'until', 'tokens', 'ts')
    if raw.err then
      local err = recover(b, raw)
      if err then
        return err
      end
    end
    b.exists = b.exists or raw[1] or raw[2] or raw[3]
    b.rest = max(0, (finite(raw[1]) or 0) - now)
    local tokens, ts = finite(raw[2]), finite(raw[3])
    if not tokens or not ts or ts > now + AHEAD then
      tokens, ts = b.capacity, now
    end
    b.tokens = min(b.capacity, max(-b.capacity, tokens) + max(now - ts, 0) * b.refill / 1000)
    b.begun = 0
  end

  local function ban_room(b)
    return b.rest > 0 and 0 or math.huge
  end

  local function ban_store(b)
    clear(b)
    call('HSET', b.key, 'until', whole(now + b.rest), 'tokens', format('%.17g', b.tokens), 'ts', whole(now))
  end

  local function ban_begin(b)
    if b.rest <= 0 then
      b.rest, b.begun = b.length, 1
    end
  end

  local function ban_settle(b, spent)
    if b.settled and spent > 0 then
      b.tokens = max(-b.capacity, b.tokens - spent)
      if b.tokens < b.unit - TINY then
        ban_begin(b)
      end
      ban_store(b)
    end
    return 0
  end

  -- The refusal of the bucket itself begins a ban, not that of another of the entry.
  local function ban_tell(b, count, granted)
    local of = b.of
    local refused = count > 0 and granted == 0 and b.rest <= 0 and of.cost <= of.capacity and floor(of.by.room(of) / of.cost) < 1
    if refused and not b.settled then
      ban_begin(b)
      ban_store(b)
    elseif refused and b.tokens >= of.cost - TINY then
      reply[last - 1] = min(reply[last - 1], SOON)
    end
    local full = max(b.rest, ceil((b.capacity - b.tokens) * 1000 / b.refill - 1e-6))
    if count ~= 0 and b.exists then
      keep(b.key, b.window, full, full)
    end
    reply[last + 1], reply[last + 2], reply[last + 3] = ceil(b.rest), b.begun, full
    last = last + 3
  end

  return { read = ban_read, room = ban_room, take = function() end, settle = ban_settle, repair = ban_store, tell = ban_tell }
end
