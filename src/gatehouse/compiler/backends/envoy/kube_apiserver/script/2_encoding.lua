-- Percent-encoding as in Go's net/url, and for requests to the reviewer.
local function unescaped(text)
  if not find(text, "%", 1, true) then return text end
  local bad = false
  local result = gsub(text, "%%(%x?%x?)", function(code)
    if #code < 2 then
      bad = true
      return ""
    end
    return char(tonumber(code, 16))
  end)
  if not bad then return result end
end

local function escaped(text)
  return (gsub(text, "[^%w%-._~]", function(c) return format("%%%02X", byte(c)) end))
end

local function escaped_list(values)
  local result = {}
  for i = 1, #values do result[i] = escaped(values[i]) end
  return concat(result, ",")
end

local function escaped_pairs(pairs_of)
  local result = {}
  for i = 1, #pairs_of do
    result[i] = escaped(pairs_of[i][1]) .. "=" .. escaped(pairs_of[i][2])
  end
  return concat(result, ",")
end

local function listed(text)
  local result = {}
  for item in gmatch(text or "", "[^,]+") do result[#result + 1] = unescaped(item) end
  return result
end

local function paired(text)
  local result = {}
  for key, value in gmatch(text or "", "([^,=]*)=([^,]*)") do
    key, value = unescaped(key), unescaped(value)
    if key and value then result[#result + 1] = { key, value } end
  end
  return result
end

-- A key of `extra` as part of a header name, as client-go encodes it.
local function escaped_key(key)
  return (gsub(lower(key), "[^%w!#$&'*+.^_`|~-]", function(c)
    return format("%%%02X", byte(c))
  end))
end

local DIGITS = {}
do
  local all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
  for i = 1, 64 do DIGITS[byte(all, i)] = i - 1 end
end

-- Decode base64url without padding; nil if it is invalid.
local function decoded(text)
  local result, bits, held = {}, 0, 0
  if #text % 4 == 1 then return nil end
  for i = 1, #text do
    local digit = DIGITS[byte(text, i)]
    if not digit then return nil end
    held, bits = held * 64 + digit, bits + 6
    if bits >= 8 then
      bits = bits - 8
      local power = 2 ^ bits
      local whole = (held - held % power) / power
      result[#result + 1] = char(whole)
      held = held % power
    end
  end
  if held ~= 0 then return nil end
  return concat(result)
end
