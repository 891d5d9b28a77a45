-- Entries of token buckets in good order, which most are, in straight lines: no
-- function, no number read or written that is not needed, and no table where an
-- entry has one bucket. So is a settlement of one bucket that leaves enough for
-- another unit. At the first entry that has another algorithm, costs of its keys, or a
-- state that is broken, in debt or ahead of the clock, this ends, having changed
-- nothing of it. The long way decides that one, and all that this does, in the same way.
--
-- KEYS and ARGV: as in take.lua, with algorithm 1.

while entry <= entries do
  local packed = argv[entry]
  local n, cost, count, kind, capacity, refill, window = numbers('<ddddddd', packed)
  local good, held, settled = kind == 1 and n > 0, nil, false
  if n > 1 then
    -- Of each bucket: capacity refill window tokens since balance exists.
    held, reply = {}, reply or {}
    for i = 0, n - 1 do
      kind, held[7 * i + 1], held[7 * i + 2], held[7 * i + 3] = numbers('<dddd', packed, 32 * i + 25)
      good = good and kind == 1
    end
  elseif n == -1 and count == -1 and kind == 1 then
    local name, min = keys[key], math.min
    local raw = pcall('HMGET', name, 'tokens', 'ts')
    local tokens, ts = tonumber(raw[1]), tonumber(raw[2])
    if tokens and ts and tokens >= -capacity and ts <= now and tokens - tokens == ts - ts then
      tokens = min(min(tokens, capacity) + (now - ts) * refill / 1000, capacity)
      tokens = min(tokens - numbers('<d', packed, 57), capacity)
      settled = tokens >= 1
    end
    if settled then
      stamp = stamp or string.format('%.0f', now)
      call('HSET', name, 'tokens', tokens, 'ts', stamp)
      local full = 0
      if tokens < capacity - TINY then
        full = math.ceil((capacity - tokens) * 1000 / refill - 1e-6)
        if tokens + full * refill / 1000 < capacity - TINY then
          full = full + 1
        end
      end
      if call('PTTL', name) < full then
        call('PEXPIRE', name, math.max(2 * window, full, 1000))
      end
      reply = reply or {}
      reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = 0, math.floor(min(tokens + TINY, capacity)), 0, full
      last, key, entry = last + 4, key + 1, entry + 1
    end
  end

  -- Most entries' arguments are like the one before.
  while good do
    -- What all of its buckets can give.
    local granted, first, past, at = count, key, key + n, 0
    local tokens, since, balance, exists
    repeat
      local raw = pcall('HMGET', keys[key], 'tokens', 'ts')
      local ts = raw[2]
      tokens = raw[1]
      if held then
        capacity, refill = held[at + 1], held[at + 2]
      end
      exists = tokens or ts
      if exists == false then
        tokens, since, balance = capacity, 0, capacity
      else
        tokens = tonumber(tokens)
        ts = tonumber(ts)
        -- Not numbers, or not finite ones, or from a time that has not come.
        if not tokens or not ts or tokens < 0 or ts > now or tokens - tokens ~= ts - ts then
          good = false
          break
        elseif tokens > capacity then
          tokens = capacity
        end
        since = now - ts
        balance = tokens + since * refill / 1000
        if balance > capacity then
          balance = capacity
        end
      end
      local units = (balance + TINY) / cost
      if units < granted then
        granted = units - units % 1
      end
      if held then
        held[at + 4], held[at + 5], held[at + 6], held[at + 7] = tokens, since, balance, exists
        at = at + 7
      end
      key = key + 1
    until key == past
    key, at = first, 0
    if not good then
      break
    end

    if reply then
      last = last + 1
      reply[last] = granted
    end
    repeat
      local name = keys[key]
      if held then
        capacity, refill, window = held[at + 1], held[at + 2], held[at + 3]
        tokens, since, balance, exists = held[at + 4], held[at + 5], held[at + 6], held[at + 7]
        at = at + 7
      end
      local least = 0
      if granted > 0 then
        tokens, since = balance - granted * cost, 0
        if tokens < 0 then
          tokens = 0
        end
        balance, least = tokens, window
        if tokens ~= stored then
          -- Redis writes a number as %.17g, so that no digit of a fraction is lost.
          stored, stored_text = tokens, tokens % 1 == 0 and string.format('%d', tokens) or tokens
        end
        if not stamp then
          -- Put together as a text: to write a number costs as much as a command.
          stamp = time[2]
          stamp = time[1] .. (#stamp == 6 and stamp:sub(1, 3) or (1000000 + stamp .. ''):sub(2, 4))
        end
        call('HSET', name, 'tokens', stored_text, 'ts', stamp)
      end

      -- The waits, as bucket_wait has them.
      local full, retry, brim = 0, 0, capacity - TINY
      if balance < brim then
        full = (capacity - tokens) * 1000 / refill - since - 1e-6
        full = full + -full % 1
        if tokens + (since + full) * refill / 1000 < brim then
          full = full + 1
        end
        if balance < cost - TINY then
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
      if exists then
        exists = count == 0 or call('PTTL', name) >= least
      elseif granted == 0 then
        exists = true
      end
      if not exists then
        local long = math.max(2 * window, full, 1000)
        if long ~= ttl then
          ttl, ttl_text = long, string.format('%d', long)
        end
        call('PEXPIRE', name, ttl_text)
      end

      balance = balance + TINY
      balance = balance < capacity and balance - balance % 1 or capacity
      if not reply then
        return { granted, balance, retry, full }
      end
      reply[last + 1], reply[last + 2], reply[last + 3] = balance, retry, full
      last = last + 3
      key = key + 1
    until key == past
    entry = entry + 1
    if argv[entry] ~= packed then
      break
    end
  end
  if not good and not settled then
    break
  end
end
