-- Sliding window log: at most `capacity` tokens in any span of `window` ms.
--
-- KEYS: a sorted set with one member `<µs>-<n>` for each token taken, scored
-- with the µs of Redis' clock. What was refused is not in it.
-- ARGV of its rule: 2 capacity refill_per_second window_ms

local function sliding_window_log()
  -- The most members that one command writes, and that one repair moves: no call
  -- holds up Redis for what others have left.
  local ADDED, MOVED = 500, 100

  local function log_read(b)
    b.span = b.window * 1000
    b.start = '(' .. whole(now_us - b.span)
    local newest = pcall('ZREVRANGE', b.key, 0, 0, 'WITHSCORES')
    if newest.err then
      local err = recover(b, newest)
      if err then
        return err
      end
    end
    b.used, b.newest = 0, tonumber(newest[2])
    if b.newest then
      b.exists = true
      b.used = call('ZCOUNT', b.key, b.start, '+inf')
      b.broken = b.newest > now_us + AHEAD * 1000
    end
  end

  local function log_room(b)
    return b.capacity - b.used
  end

  -- log_score(b, n) is when the n-th oldest of those that count was taken. Members
  -- from a time that has not come count as now, before those a little ahead.
  local function log_score(b, n)
    local early = b.broken and call('ZCOUNT', b.key, '(' .. whole(now_us + AHEAD * 1000), '+inf') or 0
    if early > 0 then
      local past = call('ZCOUNT', b.key, b.start, whole(now_us))
      if n > past and n <= past + early then
        return now_us
      end
      n = n > past and n - early or n
    end
    local found = call('ZRANGEBYSCORE', b.key, b.start, '+inf', 'WITHSCORES', 'LIMIT', n - 1, 1)
    return tonumber(found[2]) or now_us
  end

  -- log_expiry(b, score) is the ms until a token taken at score is free again.
  local function log_expiry(b, score)
    return max(0, ceil((score + b.span - now_us) / 1000))
  end

  local function log_full(b)
    return b.used > 0 and log_expiry(b, b.broken and log_score(b, b.used) or b.newest) or 0
  end

  -- log_add(b, count) writes count members of this instant, after those there are.
  local function log_add(b, count)
    local first = call('ZCOUNT', b.key, whole(now_us), whole(now_us))
    local add = {}
    for i = 0, count - 1 do
      add[#add + 1] = whole(now_us)
      add[#add + 1] = whole(now_us) .. '-' .. whole(first + i)
      if #add == 2 * ADDED or i == count - 1 then
        call('ZADD', b.key, unpack(add))
        add = {}
      end
    end
  end

  -- log_repair(b) moves members from a time that has not come to now. What one
  -- call leaves, the next ones move.
  local function log_repair(b)
    clear(b)
    local from = '(' .. whole(now_us + AHEAD * 1000)
    local early = call('ZRANGEBYSCORE', b.key, from, '+inf', 'LIMIT', 0, MOVED)
    if #early > 0 then
      call('ZREM', b.key, unpack(early))
      log_add(b, #early)
    end
  end

  -- log_take(b, tokens) trims more than it adds, and only so much more that it
  -- weighs no more for it: what was left by a burst goes with the next grants.
  local function log_take(b, tokens)
    local expired = call('ZCARD', b.key) - b.used
    if expired > 0 then
      call('ZREMRANGEBYRANK', b.key, 0, min(expired, 2 * tokens + 16) - 1)
    end
    log_add(b, tokens)
    b.exists, b.used, b.newest = true, b.used + tokens, max(b.newest or now_us, now_us)
  end

  -- log_wait(b, cost) is the ms until enough of the oldest tokens are free again.
  local function log_wait(b, cost)
    local short = b.used + cost - b.capacity
    if short <= 0 then
      return 0
    end
    return log_expiry(b, log_score(b, short))
  end

  -- log_settle(b, more, age) gives back what was taken age ms ago: the newest members
  -- of then or before, and only where there are none, younger ones. A log takes no more
  -- than it granted.
  local function log_settle(b, more, age)
    local back, from = min(-more, ADDED), whole(now_us - age * 1000)
    if back <= 0 or age >= b.window or b.used == 0 then
      return max(0, more)
    end
    local old = call('ZREVRANGEBYSCORE', b.key, from, b.start, 'LIMIT', 0, back)
    if #old > 0 then
      call('ZREM', b.key, unpack(old))
    end
    if #old < back then
      local young = call('ZRANGEBYSCORE', b.key, from, '+inf', 'LIMIT', 0, back - #old)
      if #young > 0 then
        call('ZREM', b.key, unpack(young))
      end
    end
    return log_read(b) and 0 or 0
  end

  return {
    read = log_read, room = log_room, take = log_take, settle = log_settle, repair = log_repair, wait = log_wait, full = log_full,
  }
end
