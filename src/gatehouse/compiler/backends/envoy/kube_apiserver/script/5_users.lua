-- Authentication. A user is built once per credential, with the headers that name it to servers.
local MAX_CONNECTIONS, MAX_CERTIFICATES = 8192, 8192
local MAX_TOKENS, MAX_IMPERSONATIONS = 8192, 2048
local MAX_TOKEN_BYTES = 16384
local REVIEWER, TIMEOUT_MILLISECONDS = "gh-reviewer", 15000
local SOCKET_TOKEN = "base64url.bearer.authorization.k8s.io."

local connections = new_cache(MAX_CONNECTIONS)
local certificates = new_cache(MAX_CERTIFICATES)
local tokens = new_cache(MAX_TOKENS)
local impersonations = new_cache(MAX_IMPERSONATIONS)

-- Return whether a server reads a header with this value unchanged.
local function is_sendable(value)
  return value ~= "" and not find(value, "%c") and not find(value, "^ ") and not find(value, " $")
end

-- Build a user; nil if servers could read another name.
local function new_user(name, uid, groups, extra)
  if not is_sendable(name) then return nil end
  local headers = { { "impersonate-user", name } }
  if uid ~= "" then
    if not is_sendable(uid) then return nil end
    headers[#headers + 1] = { "impersonate-uid", uid }
  end
  for _, group in ipairs(groups) do
    if not is_sendable(group) then return nil end
    headers[#headers + 1] = { "impersonate-group", group }
  end
  for _, pair in ipairs(extra) do
    -- An empty value has no spaces that could be lost.
    if pair[1] == "" or not (pair[2] == "" or is_sendable(pair[2])) then return nil end
    headers[#headers + 1] = { "impersonate-extra-" .. escaped_key(pair[1]), pair[2] }
  end
  return { name = name, uid = uid, groups = groups, extra = extra, headers = headers }
end

local function with_group(groups, group)
  local result = {}
  for i, item in ipairs(groups) do
    if item == group then return groups end
    result[i] = item
  end
  result[#result + 1] = group
  return result
end

local ANONYMOUS = new_user("system:anonymous", "", { "system:unauthenticated" }, {})

local function read_certificate(tls)
  local digest = tls:sha256PeerCertificateDigest()
  local result = recall(certificates, digest)
  if result == nil then
    local subject = tls:parsedSubjectPeerCertificate()
    local name = subject and subject:commonName() or ""
    result = false
    if name ~= "" then
      local groups = with_group(subject:organizationName(), "system:authenticated")
      result = new_user(name, "", groups, {}) or false
      if result then result.expires = tls:expirationPeerCertificate() end
    end
    keep(certificates, digest, result)
  end
  return result
end

-- Envoy passes the connection ID of a request, and removes it from client headers. A connection has
-- one certificate for its whole life, and IDs are never reused; Envoy calculates the digest on each
-- call.
local function of_connection(info, arrived)
  local result = recall(connections, arrived)
  if result == nil then
    result = read_certificate(info:downstreamSslConnection())
    if find(arrived, ":%d+$") then keep(connections, arrived, result) end
  end
  return result
end

-- Objects that Envoy passes to a script are invalid after it has yielded: callers compare this
-- counter.
local calls = 0

local function ask(handle, path, headers)
  calls = calls + 1
  headers[":method"], headers[":path"], headers[":authority"] = "POST", path, "reviewer"
  return handle:httpCall(REVIEWER, headers, "", TIMEOUT_MILLISECONDS)
end

-- Look up the whole header value in the cache, before it is parsed.
local function recall_sender(config, authorization)
  local result = recall_answer(tokens, authorization, config.good_for, config.bad_for)
  return result and result.user
end

local function of_token(handle, config, token, key)
  if #token > MAX_TOKEN_BYTES or find(token, "%c") then return nil, 401, "Unauthorized" end
  -- The whole credential is the key, so that no other can match it.
  local result = recall_answer(tokens, key, config.good_for, config.bad_for)
  if not result then
    local headers, body = ask(handle, "/token", {
      ["x-cluster"] = escaped(config.cluster), ["authorization"] = "Bearer " .. token,
      ["x-good-for"] = config.good_for, ["x-bad-for"] = config.bad_for,
    })
    local status = headers[":status"]
    result = {}
    if status == "200" then
      local groups = with_group(listed(headers["x-groups"]), "system:authenticated")
      local name, uid = unescaped(headers["x-user"] or ""), unescaped(headers["x-uid"] or "")
      result.user = name and uid and new_user(name, uid, groups, paired(headers["x-extra"]))
    elseif status ~= "401" then
      return nil, 503, "the token could not be reviewed: " .. (body or "")
    end
    keep_answer(tokens, key, result, headers["x-keep"], config.good_for, config.bad_for)
  end
  if result.user then return result.user end
  return nil, 401, "Unauthorized"
end

-- Return the token of an Authorization header, as Kubernetes parses it; nil if it is not a bearer
-- token.
local function bearer(authorization)
  local scheme, rest = string.match(authorization, "^%s*(%S+) (.*)$")
  if scheme and lower(scheme) == "bearer" then
    local token = string.match(rest, "^[^ ]*")
    if token ~= "" then return token end
  end
end

-- Return the token among the protocols of a websocket, and the other protocols.
local function socket_token(protocols)
  local token, rest = nil, {}
  for item in gmatch(protocols, "[^,]+") do
    item = string.match(item, "^%s*(.-)%s*$")
    if sub(item, 1, #SOCKET_TOKEN) == SOCKET_TOKEN then
      if token then return false end
      token = decoded(sub(item, #SOCKET_TOKEN + 1)) or ""
    else
      rest[#rest + 1] = item
    end
  end
  if token and (token == "" or #rest == 0) then return false end
  return token, concat(rest, ", ")
end

-- Return the sender of a request; nil, a status and the reason if it cannot be authenticated.
local function sender(handle, config, info, arrived, seen, certificate)
  local doubtful = config.believed and certificate ~= ""
  if doubtful and certificate == "proven" then
    local user = of_connection(info, arrived)
    -- TLS checks the validity at the handshake only, and a connection may be old.
    if user and time() > user.expires then return nil, 401, "Unauthorized" end
    if user then return user end
  end
  local authorization = seen.authorization
  if authorization then
    local user = recall_sender(config, authorization)
    if user then return user end
  end
  local token, key = authorization and bearer(authorization), authorization
  if not token and seen.protocols and seen.upgrade and lower(seen.upgrade) == "websocket" then
    local rest
    token, rest = socket_token(seen.protocols)
    if token == false then return nil, 401, "Unauthorized" end
    if token then
      key = SOCKET_TOKEN .. token
      handle:headers():replace("sec-websocket-protocol", rest)
    end
  end
  if token then return of_token(handle, config, token, key) end
  if doubtful or not config.anonymous then return nil, 401, "Unauthorized" end
  return ANONYMOUS
end
