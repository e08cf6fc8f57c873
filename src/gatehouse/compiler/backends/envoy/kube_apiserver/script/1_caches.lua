-- Every request calls Envoy again and again, where no trace of the compiler goes on. With the
-- compiler a request took 2.6% more instructions, in one run of each (bench/RESULTS.md).
jit.off()

-- What is remembered, and for how long. All of it is of one worker, and bounded.
local byte, find, gmatch, gsub = string.byte, string.find, string.gmatch, string.gsub
local char, format, lower, sub = string.char, string.format, string.lower, string.sub
local concat, sort, time = table.concat, table.sort, os.time

-- A cache of two generations: what nobody asked for while `most` others came in is gone.
local function new_cache(most)
  return { most = most, count = 0, young = {}, old = {} }
end

local function keep(cache, key, value)
  if cache.count >= cache.most then
    cache.old, cache.young, cache.count = cache.young, {}, 0
  end
  if cache.young[key] == nil then cache.count = cache.count + 1 end
  cache.young[key] = value
end

local function recall(cache, key)
  local found = cache.young[key]
  if found ~= nil then return found end
  found = cache.old[key]
  if found ~= nil then keep(cache, key, found) end
  return found
end

-- An answer of the reviewer, while it is good. `good` and `bad` say how long answers are kept: one
-- that was kept by other terms is asked for again, and the reviewer counts what is left by these.
local function recall_answer(cache, key, good, bad)
  local found = recall(cache, key)
  if found and found.good == good and found.bad == bad and time() < found.ends then
    return found
  end
end

local function keep_answer(cache, key, answer, seconds, good, bad)
  seconds = tonumber(seconds or "") or 0
  if seconds > 0 then
    answer.ends, answer.good, answer.bad = time() + seconds, good, bad
    keep(cache, key, answer)
  end
end
