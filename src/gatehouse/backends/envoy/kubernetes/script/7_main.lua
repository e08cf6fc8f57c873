-- One request. An error anywhere leaves it on the route it came by, which answers 500.
local FILTER = "gh.kubernetes"
local config = {}

-- What a route's name says: the version of what is told, and what the client's certificate is.
local shown_by = {}

local function told_by(handle, name)
  local version = string.match(name, "^[^/]*")
  config = compiled(handle:virtualHost():metadata():get("served"))
  shown_by = {}
  for _, each in ipairs({ "proven", "shown", "" }) do shown_by[version .. "/" .. each] = each end
  return shown_by[name]
end

local function refuse(handle, status, why, headers)
  headers = headers or {}
  headers[":status"] = tostring(status)
  handle:respond(headers, why)
end

-- What of a request's headers counts, in one pass: each look at them crosses into Envoy.
local function looked(headers)
  local method, target, arrived, seen, wishes
  for key, value in pairs(headers) do
    local first = byte(key)
    if first == 58 then
      if key == ":method" then method = value elseif key == ":path" then target = value end
    elseif first == 97 then
      if key == "authorization" then
        seen = seen or {}
        seen.authorization = seen.authorization or value
      end
    elseif first == 105 then
      if sub(key, 1, 12) == "impersonate-" then
        wishes = wishes or {}
        wishes[#wishes + 1] = { key, value }
      end
    elseif first == 117 then
      if key == "upgrade" then
        seen = seen or {}
        seen.upgrade = value
      end
    elseif first == 115 then
      if key == "sec-websocket-protocol" then
        seen = seen or {}
        seen.protocols = value
      end
    elseif first == 120 then
      if key == "x-gh-scope" then arrived = value end
    end
  end
  return method, target, arrived, seen, wishes
end

local NOTHING = {}

local function noted(info, now, user, found, sent_by)
  local request = found.request
  info:dynamicMetadata():set(FILTER, "request", {
    cluster = now.cluster, user = user.name, groups = user.groups, verb = request.verb,
    impersonator = sent_by ~= user and sent_by.name or "", resource = request.resource or "",
    group = request.group, namespace = request.namespace, name = request.name,
    policy = found.policy.place, schema = found.policy.schema, path = request.path,
  })
end

function envoy_on_request(handle)
  local info = handle:streamInfo()
  local name = info:routeName()
  local shown = shown_by[name] or told_by(handle, name)
  local now = config
  if now.denied then
    return refuse(handle, 429, "request for " .. now.cluster .. " is denied for now")
  end
  local headers = handle:headers()
  local method, target, arrived, seen, wishes = looked(headers)
  seen = seen or NOTHING
  if not target or (byte(target) ~= 47 and target ~= "*") then
    return refuse(handle, 400, "the target is no path")
  end
  local before = calls
  local user, status, why = sender(handle, now, info, arrived, seen, shown)
  if not user then return refuse(handle, status, why) end
  local sent_by = user
  if wishes then
    user, status, why = impersonated(handle, now, user, wishes)
    if not user then return refuse(handle, status, why) end
    headers = handle:headers()
    for i = 1, #wishes do headers:remove(wishes[i][1]) end
  end
  if calls ~= before then info, headers = handle:streamInfo(), handle:headers() end
  local found = decided(now, user, method, target)
  if not found.scope then
    if found.status then return refuse(handle, found.status, found.why) end
    return refuse(handle, 403, "no policy of cluster(" .. now.cluster .. ") holds this request")
  end
  local said = user.headers
  for i = 1, #said do headers:add(said[i][1], said[i][2]) end
  local way = found.way
  if seen.upgrade then
    way = found.upgrade
    -- Nothing else is taken away on the way because a client says so.
    headers:replace("connection", "upgrade")
  end
  if way then headers:replace("x-gh-way", way) end
  if found.events then info:dynamicMetadata():set(FILTER, "events", true) end
  if found.logged then noted(info, now, user, found, sent_by) end
  headers:replace("x-gh-scope", found.scope)
  handle:clearRouteCache()
end
