-- The JIT compiler is off: every request calls Envoy repeatedly, and no trace of the compiler
-- continues over such a call. With it a request took 2.6% more instructions, in one run of each
-- (bench/RESULTS.md).
jit.off()

-- Caches. Each belongs to one worker and is bounded.
local byte, find, gmatch, gsub = string.byte, string.find, string.gmatch, string.gsub
local char, format, lower, sub = string.char, string.format, string.lower, string.sub
local concat, sort, time = table.concat, table.sort, os.time

-- A cache of two generations: an entry is dropped if it was not read while `capacity` others were
-- added.
local function new_cache(capacity)
  return { capacity = capacity, count = 0, young = {}, old = {} }
end

local function keep(cache, key, value)
  if cache.count >= cache.capacity then
    cache.old, cache.young, cache.count = cache.young, {}, 0
  end
  if cache.young[key] == nil then cache.count = cache.count + 1 end
  cache.young[key] = value
end

local function recall(cache, key)
  local result = cache.young[key]
  if result ~= nil then return result end
  result = cache.old[key]
  if result ~= nil then keep(cache, key, result) end
  return result
end

-- Return a valid cached answer of the reviewer. `good` and `bad` are the configured lifetimes of
-- positive and negative answers. If they changed, the answer is requested again: the reviewer
-- calculates the remaining lifetime by them.
local function recall_answer(cache, key, good, bad)
  local result = recall(cache, key)
  if result and result.good == good and result.bad == bad and time() < result.ends then
    return result
  end
end

local function keep_answer(cache, key, answer, seconds, good, bad)
  seconds = tonumber(seconds or "") or 0
  if seconds > 0 then
    answer.ends, answer.good, answer.bad = time() + seconds, good, bad
    keep(cache, key, answer)
  end
end
