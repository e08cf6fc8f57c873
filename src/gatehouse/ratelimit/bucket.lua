-- Takes tokens from a bucket if it has enough. Atomic; uses Redis' clock.
-- KEYS[1]: the bucket. ARGV: tokens per period, capacity, number of tokens to take, seconds of the
-- period.
-- Returns 1 if they were taken, else 0; whole tokens left; milliseconds until there are enough.
local rate, burst, requested = ARGV[1] / ARGV[4], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A missing bucket was full before it expired; an invalid one starts full.
local tokens = burst
local stored = redis.pcall('GET', KEYS[1])
if type(stored) == 'string' then
  local tokens_then, at = string.match(stored, '^(%S+) (%d+)$')
  tokens_then, at = tonumber(tokens_then), tonumber(at)
  if tokens_then and at then
    -- A clock that went back adds no tokens; counting continues from the new time.
    tokens = math.max(0, math.min(burst, tokens_then + math.max(0, now - at) * rate / 1000000))
  end
end
if requested > tokens then
  -- No write is needed: the tokens follow from the last write.
  return {0, math.floor(tokens), math.ceil((requested - tokens) / rate * 1000)}
end
tokens = tokens - requested
local full = math.ceil((burst - tokens) / rate * 1000) + 1
redis.call('SET', KEYS[1], string.format('%.17g %.0f', tokens, now), 'PX', string.format('%.0f', full))
return {1, math.floor(tokens), 0}
