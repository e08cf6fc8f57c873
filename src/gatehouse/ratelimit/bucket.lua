-- Takes tokens from a bucket, if it holds as many: all at one moment, by Redis' own clock.
-- KEYS[1]: the bucket. ARGV: tokens each second, the most it holds, how many are wanted.
-- Gives: whether they were taken (1 or 0), whole tokens left, milliseconds until there will be enough.
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- What is not there was full before it expired; what cannot be read is begun anew.
local tokens = burst
local kept = redis.pcall('GET', KEYS[1])
if type(kept) == 'string' then
  local held, at = string.match(kept, '^(%S+) (%d+)$')
  held, at = tonumber(held), tonumber(at)
  if held and at then
    -- A clock that went back gives nothing, and is counted from.
    tokens = math.max(0, math.min(burst, held + math.max(0, now - at) * rate / 1000000))
  end
end
if wanted > tokens then
  -- What there is follows from what was written last.
  return {0, math.floor(tokens), math.ceil((wanted - tokens) / rate * 1000)}
end
tokens = tokens - wanted
local full = math.ceil((burst - tokens) / rate * 1000) + 1
redis.call('SET', KEYS[1], string.format('%.17g %.0f', tokens, now), 'PX', string.format('%.0f', full))
return {1, math.floor(tokens), 0}
