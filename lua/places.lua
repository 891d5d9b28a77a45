-- Places: at most `limit` requests at one time, of which each holds a place until it
-- gives it back by name, or nobody has renewed it for 15 s.
--
-- KEYS: a sorted set of places, `<process>:<number>`, by the ms of Redis' clock at which
-- each is free unless it is renewed. No key is no place that is held.
-- ARGV of it: 5 limit process number cost, see take.lua. A settlement of -1 gives the
-- place back, and one of n renews n places, whose other numbers follow.

local function places()
  local LEASE, FAR, MOST = 15000, 17000, 100

  local function place_read(p)
    p.process, p.number = whole(p.refill), p.window
    local held = pcall('ZCOUNT', p.key, '(' .. whole(now), '+inf')
    if type(held) == 'table' then
      local err = recover(p, held)
      if err then
        return err
      end
      held = 0
    elseif held >= p.capacity then
      -- A clock that was wrong holds no place for longer than any other.
      p.far = call('ZRANGEBYSCORE', p.key, '(' .. whole(now + FAR), '+inf', 'LIMIT', 0, MOST)
      p.broken = #p.far > 0
    end
    p.held = held
  end

  local function place_room(p)
    return p.capacity - p.held
  end

  -- place_enter(p, names) holds places from now on.
  local function place_enter(p, names)
    clear(p)
    local words = {}
    for i = 1, #names do
      words[2 * i - 1], words[2 * i] = whole(now + LEASE), names[i]
    end
    call('ZADD', p.key, unpack(words))
    keep(p.key, LEASE, LEASE, LEASE)
  end

  local function place_repair(p)
    if p.far then
      place_enter(p, p.far)
    end
  end

  local function name(p, number)
    return p.process .. ':' .. whole(number)
  end

  local function place_take(p)
    place_enter(p, { name(p, p.number) })
    p.held = p.held + 1
    local over = call('ZCARD', p.key) - p.held
    if over > 0 then
      call('ZREMRANGEBYRANK', p.key, 0, min(over, MOST) - 1)
    end
  end

  local function place_settle(p, cost)
    if cost > 0 then
      local names = { name(p, p.number) }
      for i = 2, cost do
        names[i] = name(p, p.others[i - 1])
      end
      place_enter(p, names)
    elseif not p.foreign then
      p.held = p.held - call('ZREM', p.key, name(p, p.number))
    end
    return 0
  end

  local function place_tell(p)
    reply[last + 1] = max(0, p.capacity - p.held)
    reply[last + 2] = p.held < p.capacity and 0 or 1000
    reply[last + 3] = p.held > 0 and 1000 or 0
    last = last + 3
  end

  return { read = place_read, room = place_room, take = place_take, settle = place_settle, repair = place_repair, tell = place_tell }
end
