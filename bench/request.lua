-- Arguments: the number of tenants, how they are drawn (uniform or zipf), and a
-- prefix of their names. All requests and the order in which they are sent are
-- made before the first is sent, so that wrk does little between two requests.
local draws_per_thread = 262144
local requests, draws, at = {}, {}, 0
local threads = 0

function setup(thread)
   threads = threads + 1
   thread:set("id", threads)
end

local function uniform(n)
   return function() return math.random(n) end
end

-- zipf draws tenant k with a chance in proportion to 1/k.
local function zipf(n)
   local up_to, total = {}, 0
   for k = 1, n do
      total = total + 1 / k
      up_to[k] = total
   end
   return function()
      local x = math.random() * total
      local low, high = 1, n
      while low < high do
         local middle = math.floor((low + high) / 2)
         if up_to[middle] < x then low = middle + 1 else high = middle end
      end
      return low
   end
end

function init(args)
   local n, kind, prefix = tonumber(args[1]), args[2], args[3]
   for i = 1, n do
      wrk.headers["X-Api-Key"] = prefix .. (i - 1)
      requests[i] = wrk.format()
   end
   math.randomseed(id)
   local draw = kind == "zipf" and zipf(n) or uniform(n)
   for i = 1, draws_per_thread do draws[i] = draw() end
end

function request()
   at = at % draws_per_thread + 1
   return requests[draws[at]]
end

-- One line of JSON for the benchmark. Durations are in microseconds.
function done(summary, latency)
   local e = summary.errors
   io.write(string.format(
      '{"requests":%d,"duration":%d,"statuses":%d,"connect":%d,"read":%d,"write":%d,"timeout":%d,"p50":%d,"p99":%d}\n',
      summary.requests, summary.duration, e.status, e.connect, e.read, e.write, e.timeout,
      latency:percentile(50), latency:percentile(99)))
end
