-- Entry point. After an error the request stays on its route of arrival, which answers 500.
local FILTER = "gh.kubernetes"
local config = {}

-- Parse the name of a route: the version of the configuration, and the client certificate's state.
local certificate_by_route = {}

local function load_config(handle, name)
  local version = string.match(name, "^[^/]*")
  config = compiled(handle:virtualHost():metadata():get("served"))
  certificate_by_route = {}
  for _, state in ipairs({ "proven", "shown", "" }) do
    certificate_by_route[version .. "/" .. state] = state
  end
  return certificate_by_route[name]
end

local function refuse(handle, status, why, headers)
  headers = headers or {}
  headers[":status"] = tostring(status)
  handle:respond(headers, why)
end

-- Kinds of headers by name; false: irrelevant. Clients choose names freely: the table is bounded.
local MAX_NAMES = 512
local METHOD, TARGET, ARRIVED, SENDER, UPGRADE, PROTOCOLS, WISH, FOREIGN = 1, 2, 3, 4, 5, 6, 7, 8
local kinds, names

local function forget_names()
  kinds, names = {
    [":method"] = METHOD, [":path"] = TARGET, ["x-gh-scope"] = ARRIVED,
    ["authorization"] = SENDER, ["upgrade"] = UPGRADE, ["sec-websocket-protocol"] = PROTOCOLS,
    -- Envoy's own headers, which no request carries on.
    ["x-envoy-external-address"] = false, ["x-envoy-internal"] = false,
  }, 0
end

forget_names()

local function kind_of(name)
  if names >= MAX_NAMES then forget_names() end
  local kind = sub(name, 1, 12) == "impersonate-" and WISH or find(name, "^x%-remote%-") and FOREIGN
    or find(name, "^x%-envoy%-") and FOREIGN or false
  kinds[name], names = kind, names + 1
  return kind
end

-- Collect the relevant headers in one pass: each access crosses into Envoy.
local function scan_headers(headers)
  local method, target, arrived, seen, wishes, foreign
  for key, value in pairs(headers) do
    local kind = kinds[key]
    if kind == nil then kind = kind_of(key) end
    if not kind then
      -- Most headers are irrelevant.
    elseif kind == METHOD then
      method = value
    elseif kind == TARGET then
      target = value
    elseif kind == ARRIVED then
      arrived = value
    elseif kind == WISH then
      wishes = wishes or {}
      wishes[#wishes + 1] = { key, value }
    elseif kind == FOREIGN then
      foreign = foreign or {}
      foreign[#foreign + 1] = key
    else
      seen = seen or {}
      if kind == SENDER then
        seen.authorization = seen.authorization or value
      elseif kind == UPGRADE then
        seen.upgrade = value
      else
        seen.protocols = value
      end
    end
  end
  return method, target, arrived, seen, wishes, foreign
end

local NOTHING = {}

-- Envoy accepts a list with one of these in it, and the server could choose another protocol.
local TUNNELS = { ["websocket"] = true, ["spdy/3.1"] = true }

local function log_request(info, now, user, result, sent_by)
  local request = result.request
  info:dynamicMetadata():set(FILTER, "request", {
    cluster = now.cluster, user = user.name, groups = user.groups, verb = request.verb,
    impersonator = sent_by ~= user and sent_by.name or "", resource = request.resource or "",
    group = request.group, namespace = request.namespace, name = request.name,
    policy = result.policy.place, schema = result.policy.schema, path = request.path,
  })
end

function envoy_on_request(handle)
  local info = handle:streamInfo()
  local name = info:routeName()
  local certificate = certificate_by_route[name] or load_config(handle, name)
  local now = config
  if now.denied then
    return refuse(handle, 429, "request for " .. now.cluster .. " is denied for now")
  end
  local headers = handle:headers()
  local method, target, arrived, seen, wishes, foreign = scan_headers(headers)
  seen = seen or NOTHING
  -- Headers that clients must not send: servers and Envoy itself would trust them.
  if foreign then
    for i = 1, #foreign do headers:remove(foreign[i]) end
  end
  if not target or (byte(target) ~= 47 and target ~= "*") then
    return refuse(handle, 400, "the target is no path")
  end
  if seen.upgrade and not TUNNELS[lower(seen.upgrade)] then
    return refuse(handle, 403, "upgrade to " .. seen.upgrade .. " is not supported")
  end
  local before = calls
  local user, status, why = sender(handle, now, info, arrived, seen, certificate)
  if not user then return refuse(handle, status, why) end
  local sent_by = user
  if wishes then
    user, status, why = impersonated(handle, now, user, wishes)
    if not user then return refuse(handle, status, why) end
    headers = handle:headers()
    for i = 1, #wishes do headers:remove(wishes[i][1]) end
  end
  if calls ~= before then info, headers = handle:streamInfo(), handle:headers() end
  local result = decided(now, user, method, target)
  if not result.scope then
    if result.status then return refuse(handle, result.status, result.why) end
    return refuse(handle, 403, "no policy of cluster(" .. now.cluster .. ") holds this request")
  end
  local added = user.headers
  for i = 1, #added do headers:add(added[i][1], added[i][2]) end
  local way = result.way
  if seen.upgrade then
    way = result.upgrade
    -- A client cannot have other headers removed on the way.
    headers:replace("connection", "upgrade")
  end
  if way then headers:replace("x-gh-way", way) end
  if result.events then info:dynamicMetadata():set(FILTER, "events", true) end
  if result.logged then log_request(info, now, user, result, sent_by) end
  headers:replace("x-gh-scope", result.scope)
  handle:clearRouteCache()
end
