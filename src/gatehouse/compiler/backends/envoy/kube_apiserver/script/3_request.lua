-- Request parsing: RequestInfo of k8s.io/apiserver (pkg/endpoints/request/requestinfo.go).
local VERBS = {
  POST = "create", GET = "get", HEAD = "get", PUT = "update", PATCH = "patch", DELETE = "delete",
}
local LONG_VERBS = { watch = true, proxy = true }
local LONG_SUBRESOURCES = { attach = true, exec = true, proxy = true, log = true, portforward = true }
local OF_NAMESPACES = { status = true, finalize = true }
local LISTED = { watch = true, fieldSelector = true, limit = true, timeoutSeconds = true }

local function parts_of(path)
  local result, n = {}, 0
  local from, to = find(path, "^/*()")
  local first = to + 1
  local last = #path
  while last >= first and byte(path, last) == 47 do last = last - 1 end
  if last < first then return result, 0 end
  local text = sub(path, first, last)
  local start = 1
  while true do
    local slash = find(text, "/", start, true)
    n = n + 1
    if not slash then
      result[n] = sub(text, start)
      return result, n
    end
    result[n] = sub(text, start, slash - 1)
    start = slash + 1
  end
end

-- The first value of each relevant parameter; pairs that Go cannot parse are skipped.
local function parameters(query)
  local result = {}
  for pair in gmatch(query, "[^&]+") do
    if not find(pair, ";", 1, true) then
      local equal = find(pair, "=", 1, true)
      local key = unescaped((gsub(equal and sub(pair, 1, equal - 1) or pair, "%+", " ")))
      if key and LISTED[key] and result[key] == nil then
        result[key] = unescaped((gsub(equal and sub(pair, equal + 1) or "", "%+", " ")))
      end
    end
  end
  return result
end

-- Field selectors (k8s.io/apimachinery/pkg/fields).
local function selector_terms(selector)
  local result, start, escaping = {}, 1, false
  for i = 1, #selector do
    local c = byte(selector, i)
    if escaping then
      escaping = false
    elseif c == 92 then
      escaping = true
    elseif c == 44 then
      result[#result + 1] = sub(selector, start, i - 1)
      start = i + 1
    end
  end
  result[#result + 1] = sub(selector, start)
  return result
end

local function selector_term(term)
  for i = 1, #term do
    local two = sub(term, i, i + 1)
    if two == "!=" or two == "==" then return sub(term, 1, i - 1), two, sub(term, i + 2) end
    if byte(term, i) == 61 then return sub(term, 1, i - 1), "=", sub(term, i + 1) end
  end
end

local function selector_value(text)
  local result, escaping = {}, false
  for i = 1, #text do
    local c = sub(text, i, i)
    local special = c == "\\" or c == "," or c == "="
    if escaping then
      if not special then return nil end
      result[#result + 1], escaping = c, false
    elseif c == "\\" then
      escaping = true
    elseif special then
      return nil
    else
      result[#result + 1] = c
    end
  end
  if not escaping then return concat(result) end
end

-- Return the name that a selector requires, and whether the selector is valid.
local function selected_name(selector)
  local terms, name = selector_terms(selector), nil
  sort(terms)
  for i = 1, #terms do
    if terms[i] ~= "" then
      local key, operator, value = selector_term(terms[i])
      value = key and selector_value(value)
      if not value then return nil, false end
      if key == "metadata.name" and operator ~= "!=" and not name then name = value end
    end
  end
  return name, true
end

local function is_number(text)
  return text == nil or (find(text, "^[+-]?%d+$") ~= nil and #text <= 19)
end

local function is_segment(name)
  return name ~= "." and name ~= ".." and not find(name, "[/%%%z]")
end

-- A get without a name is a list or a watch, possibly of one object.
local function as_list(result, query)
  local values = parameters(query)
  -- Go also folds the long s.
  local watch = values.watch and lower((gsub(values.watch, "\197\191", "s")))
  result.verb = (watch and watch ~= "false" and watch ~= "0") and "watch" or "list"
  if values.fieldSelector and is_number(values.limit) and is_number(values.timeoutSeconds) then
    local name, readable = selected_name(values.fieldSelector)
    if readable and name and is_segment(name) then result.name = name end
  end
end

-- Parse a request; return nil, a status and the reason if Kubernetes cannot parse it either.
local function parse_request(method, target)
  local question = find(target, "?", 1, true)
  local path = unescaped(question and sub(target, 1, question - 1) or target)
  if not path then return nil, 400, "the path has a malformed percent-encoding" end
  -- No policy can match it: strings that Envoy passes to scripts end at a zero byte.
  if find(path, "%z") then return nil, 400, "the path has a zero byte" end
  local result = { verb = lower(method), path = path, group = "", name = "", namespace = "" }
  local parts, count = parts_of(path)
  local prefix, at = parts[1], 2
  local grouped = prefix == "apis"
  if count < 3 or (prefix ~= "api" and not grouped) or (grouped and count < 4) then
    result.long = LONG_VERBS[result.verb] or sub(path, 1, 13) == "/debug/pprof/"
    return result
  end
  if grouped then result.group, at = parts[2], 3 end
  at = at + 1
  if LONG_VERBS[parts[at]] then
    if at == count then return nil, 500, "unable to determine kind and namespace from the path" end
    result.verb, at = parts[at], at + 1
  else
    result.verb = VERBS[method] or ""
  end
  if parts[at] == "namespaces" and at < count then
    result.namespace = parts[at + 1]
    if at + 1 < count and not OF_NAMESPACES[parts[at + 2]] then at = at + 2 end
  end
  local resource, subresource = parts[at], ""
  if at < count then result.name = parts[at + 1] end
  if at + 1 < count and result.verb ~= "proxy" then subresource = parts[at + 2] end
  if result.name == "" and result.verb == "get" then
    as_list(result, question and sub(target, question + 1) or "")
  end
  if result.name == "" and result.verb == "delete" then result.verb = "deletecollection" end
  result.kind, result.subresource = resource, subresource
  result.resource = subresource == "" and resource or resource .. "/" .. subresource
  result.long = LONG_VERBS[result.verb] or LONG_SUBRESOURCES[subresource] or false
  result.events = resource == "events" and (result.group == "" or result.group == "events.k8s.io")
  return result
end
