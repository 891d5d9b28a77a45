-- Sliding window counter: the tokens of this window, and those of the window
-- before in proportion to how much of it the span of `window` ms still covers.
--
-- KEYS: a hash of start (the ms of Redis' clock at which this window began; the
-- first began with the first request), cur and prev (tokens taken in this
-- window and in the one before). No key is an unused counter.
-- ARGV of its rule: 3 capacity refill_per_second window_ms

local function sliding_window_counter()
  -- counter_roll(b) brings the state forward to the window that now lies in. A
  -- counter that is empty again begins like a new one, so that the answer does
  -- not depend on whether the key has died yet.
  local function counter_roll(b)
    local passed = floor((now - b.start) / b.window)
    if passed >= 1 then
      b.prev = passed == 1 and b.cur or 0
      b.cur = 0
      b.start = b.prev > 0 and b.start + passed * b.window or now
    end
  end

  local function counter_read(b)
    local raw = pcall('HMGET', b.key, 'start', 'cur', 'prev')
    if raw.err then
      local err = recover(b, raw)
      if err then
        return err
      end
    end
    local start, cur, prev = finite(raw[1]), finite(raw[2]), finite(raw[3])
    b.exists = b.exists or raw[1] or raw[2] or raw[3]
    if not start or not cur or not prev or cur < 0 or prev < 0 then
      b.broken = b.exists
      start, cur, prev = now, 0, 0
    elseif start > now + AHEAD then
      b.broken = true
      start = now
    end
    b.start, b.cur, b.prev = start, cur, prev
    counter_roll(b)
  end

  -- counter_weighed(cur, prev, elapsed, window) is what counts as taken at elapsed
  -- ms into a window.
  local function counter_weighed(cur, prev, elapsed, window)
    return cur + prev * (1 - min(max(elapsed / window, 0), 1))
  end

  local function counter_used(b)
    return counter_weighed(b.cur, b.prev, now - b.start, b.window)
  end

  local function counter_room(b)
    return b.capacity - counter_used(b) + TINY
  end

  -- counter_drain(b, cur, prev, goal) is how many ms into a window prev has faded
  -- so far that no more than goal counts as taken.
  local function counter_drain(b, cur, prev, goal)
    if prev <= 0 then
      return 0
    end
    local elapsed = max(0, ceil(b.window * (1 - (goal - cur) / prev) - 1e-6))
    if counter_weighed(cur, prev, elapsed, b.window) > goal + TINY then
      elapsed = elapsed + 1
    end
    return elapsed
  end

  local function counter_wait(b, cost)
    local goal = b.capacity - cost
    if counter_used(b) <= goal + TINY then
      return 0
    end
    local elapsed = now - b.start
    if b.cur <= goal then
      return counter_drain(b, b.cur, b.prev, goal) - elapsed
    end
    return b.window - elapsed + counter_drain(b, 0, b.cur, goal)
  end

  local function counter_full(b)
    if b.cur > 0 then
      return 2 * b.window - (now - b.start)
    end
    return b.prev > 0 and b.window - (now - b.start) or 0
  end

  local function counter_store(b)
    clear(b)
    call('HSET', b.key, 'start', whole(b.start), 'cur', whole(b.cur), 'prev', whole(b.prev))
  end

  local function counter_take(b, tokens)
    b.cur = b.cur + tokens
    counter_store(b)
  end

  -- counter_settle(b, more, age) takes more than was taken age ms ago, up to twice
  -- the capacity in all, or gives back in the window in which that was.
  local function counter_settle(b, more, age)
    local cut = 0
    if more > 0 then
      cut = min(more, max(0, ceil(counter_used(b) + more - 2 * b.capacity - TINY)))
      b.cur = b.cur + more - cut
    elseif now - age >= b.start then
      b.cur = max(0, b.cur + more)
    elseif now - age >= b.start - b.window then
      b.prev = max(0, b.prev + more)
    end
    if b.exists or more > cut then
      counter_store(b)
    end
    return cut
  end

  return {
    read = counter_read, room = counter_room, take = counter_take, settle = counter_settle,
    repair = counter_store, wait = counter_wait, full = counter_full,
  }
end
