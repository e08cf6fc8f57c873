-- Impersonation: k8s.io/apiserver, pkg/endpoints/filters/impersonation.
local EXTRA = "impersonate-extra-"

-- Parse the requested user from pairs of headers. Return it, or nil and the reason.
local function wished(headers)
  local name, uid, groups, extra = nil, "", {}, {}
  for _, pair in ipairs(headers) do
    local key, value = pair[1], pair[2]
    if key == "impersonate-user" then
      if name then return nil, "the header Impersonate-User is there more than once" end
      name = value
    elseif key == "impersonate-uid" then
      if uid ~= "" then return nil, "the header Impersonate-Uid is there more than once" end
      uid = value
    elseif key == "impersonate-group" then
      groups[#groups + 1] = value
    elseif sub(key, 1, #EXTRA) == EXTRA and #key > #EXTRA then
      local found = unescaped(sub(key, #EXTRA + 1))
      if not found then return nil, "an Impersonate-Extra header has a malformed name" end
      extra[#extra + 1] = { lower(found), value }
    else
      return nil, "there is no such header as " .. key
    end
  end
  if not name or name == "" then
    return nil, "requested to impersonate without impersonating a user"
  end
  return { name = name, uid = uid, groups = groups, extra = extra }
end

-- Groups that Kubernetes adds.
local function completed(wish)
  local groups = wish.groups
  local namespace = string.match(wish.name, "^system:serviceaccount:([^:]+):[^:]+$")
  if namespace and #groups == 0 then
    groups = { "system:serviceaccounts", "system:serviceaccounts:" .. namespace }
  end
  if wish.name == "system:anonymous" then return with_group(groups, "system:unauthenticated") end
  for _, each in ipairs(groups) do
    if each == "system:unauthenticated" then return groups end
  end
  return with_group(groups, "system:authenticated")
end

-- Return the user to impersonate; nil, a status and the reason if it is not permitted.
local function impersonated(handle, config, user, headers)
  local wish, why = wished(headers)
  if not wish then return nil, 400, why end
  local asked = {
    ["x-cluster"] = escaped(config.cluster),
    ["x-user"] = escaped(user.name), ["x-uid"] = escaped(user.uid),
    ["x-groups"] = escaped_list(user.groups), ["x-extra"] = escaped_pairs(user.extra),
    ["x-as-user"] = escaped(wish.name), ["x-as-uid"] = escaped(wish.uid),
    ["x-as-groups"] = escaped_list(wish.groups), ["x-as-extra"] = escaped_pairs(wish.extra),
    ["x-good-for"] = config.allowed_for, ["x-bad-for"] = config.denied_for,
  }
  -- Encoded values contain no space: no two questions share a key.
  local key = concat({
    asked["x-user"], asked["x-uid"], asked["x-groups"], asked["x-extra"],
    asked["x-as-user"], asked["x-as-uid"], asked["x-as-groups"], asked["x-as-extra"],
  }, " ")
  local good, bad = config.allowed_for, config.denied_for
  local found = recall_answer(impersonations, key, good, bad)
  if not found then
    local answer, body = ask(handle, "/impersonation", asked)
    local status = answer[":status"]
    found = { why = body }
    if status == "200" then
      found.user = new_user(wish.name, wish.uid, completed(wish), wish.extra)
    elseif status == "400" then
      return nil, 400, found.why
    elseif status ~= "403" then
      return nil, 503, "the impersonation could not be reviewed: " .. (body or "")
    end
    keep_answer(impersonations, key, found, answer["x-keep"], good, bad)
  end
  if found.user then return found.user end
  return nil, 403, found.why or "Forbidden"
end
