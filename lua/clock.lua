-- The clock, and what all of the script shares. Joined in front of the rest;
-- take.lua, whose header describes keys, arguments and reply, comes last. Nothing
-- is made here that most calls do not need: a function that is made and not
-- called costs Redis as much as a comparison of some hundred numbers.

local keys, argv, call, pcall, tonumber = KEYS, ARGV, redis.call, redis.pcall, tonumber
local format, max, numbers = string.format, math.max, struct.unpack

-- TIME is two texts, seconds and microseconds. The ms are put together as a text,
-- which is stored: to write a number costs as much as a command.
local time = call('TIME')
local millis = time[2]
millis = #millis == 6 and millis:sub(1, 3) or (1000000 + millis .. ''):sub(2, 4)
local stamp = time[1] .. millis
local now = stamp + 0

-- Sums of fractions miss a whole number by less than this.
local TINY = 1e-9

-- How far the script has come: the next entry and key, and the reply so far.
local entries, entry, key = #argv, 1, 1
local reply, last = entries > 1 and {} or nil, 0
