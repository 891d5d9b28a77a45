-- The clock, and what all of the script shares. Nothing is made or looked up here
-- that most calls do not need: a function that is made and not called costs Redis
-- as much as a comparison of some hundred numbers.

local keys, argv, call, pcall, tonumber, numbers = KEYS, ARGV, redis.call, redis.pcall, tonumber, struct.unpack

-- TIME is two texts, seconds and microseconds.
local time = call('TIME')
local micros = time[2] + 0
local now = time[1] * 1000 + (micros - micros % 1000) / 1000

-- Sums of fractions miss a whole number by less than this.
local TINY = 1e-9

-- How far the script has come: the next entry and key, and the reply so far.
local entries, entry, key = #argv, 1, 1
local reply, last = entries > 1 and {} or nil, 0
