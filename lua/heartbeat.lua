-- Notes that one process lives, forgets those that were not seen for a while, and
-- counts the others. All times are Redis' own.
--
-- KEYS, in one slot, both with a TTL of twice the expiry of so many:
--   seen   sorted set: when each process was last seen, in ms
--   names  sorted set: the same members, in the order of their text
-- ARGV:
--   expiry_ms  who was not seen for longer is forgotten; of more than 1000
--              processes, for as many times that as there are thousands
--   new        the member that the process is from now on; '' where it leaves
--   old...     the members that it may have been until now
-- A member reads <hash of its rules>/<id of the process>.
-- Reply: live oldest_ms, then for up to 16 hashes, in their order: hash members.
-- oldest_ms is how long ago that one was seen which was seen least lately.

local call, pcall, format = redis.call, redis.pcall, string.format
local seen, names, expiry, new = KEYS[1], KEYS[2], ARGV[1] + 0, ARGV[2]

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A stamp further ahead than this is that of a clock that was wrong.
local AHEAD = 2000

-- No call holds up Redis: it forgets this many, and tells of so many hashes.
local FORGOTTEN, GROUPS = 1000, 16

-- So many keep their heartbeat in a second; more take turns.
local A_SECOND = 1000

-- add(key, score) adds the new member. A foreign type makes way; any other error
-- is returned, such as that Redis is full: then nothing has changed.
local function add(key, score)
  local reply = pcall('ZADD', key, score, new)
  if type(reply) ~= 'table' or not reply.err then
    return
  end
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return reply
  end
  call('DEL', key)
  call('ZADD', key, score, new)
end

local function arrive()
  if new == '' then
    return
  end
  return add(seen, format('%.0f', now)) or add(names, 0)
end

local function forget(members)
  if #members > 0 then
    call('ZREM', seen, unpack(members))
    call('ZREM', names, unpack(members))
  end
end

local function outside(from, to)
  return call('ZRANGEBYSCORE', seen, from, to, 'LIMIT', 0, FORGOTTEN)
end

local err = arrive()
if err then
  return err
end
for i = 3, #ARGV do
  if ARGV[i] ~= new then
    forget({ ARGV[i] })
  end
end
expiry = expiry * math.max(1, call('ZCARD', seen) / A_SECOND)
forget(outside('-inf', format('(%.0f', now - expiry)))
forget(outside(format('(%.0f', now + AHEAD), '+inf'))

-- One of the two was lost or written to by others: everyone is counted anew.
if call('ZCARD', seen) ~= call('ZCARD', names) then
  call('DEL', seen, names)
  arrive()
end
call('PEXPIRE', seen, format('%.0f', 2 * expiry))
call('PEXPIRE', names, format('%.0f', 2 * expiry))

local least = call('ZRANGEBYSCORE', seen, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local reply = { call('ZCARD', seen), math.max(0, now - (least[2] or now)) }

-- '0' is the byte after '/', so that it ends the members of one hash.
local from = '-'
for _ = 1, GROUPS do
  local first = call('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, 1)[1]
  if not first then
    break
  end
  local hash = string.match(first, '^[^/]*')
  from = '[' .. hash .. '0'
  reply[#reply + 1] = hash
  reply[#reply + 1] = call('ZLEXCOUNT', names, '[' .. hash .. '/', '(' .. hash .. '0')
end

return reply
