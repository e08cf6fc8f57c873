-- Impersonation: k8s.io/apiserver, pkg/endpoints/filters/impersonation.
local EXTRA = "impersonate-extra-"

-- Parse the requested user from pairs of headers. Return it, or nil and the reason.
local function parse_impersonation(headers)
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
      -- A malformed escape is literal, as in kube-apiserver.
      local name_of = sub(key, #EXTRA + 1)
      extra[#extra + 1] = { lower(unescaped(name_of) or name_of), value }
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
  for _, item in ipairs(groups) do
    if item == "system:unauthenticated" then return groups end
  end
  return with_group(groups, "system:authenticated")
end

-- Return the user to impersonate; nil, a status and the reason if it is not permitted.
local function impersonated(handle, config, user, headers)
  local wish, why = parse_impersonation(headers)
  if not wish then return nil, 400, why end
  local question = {
    ["x-cluster"] = escaped(config.cluster),
    ["x-user"] = escaped(user.name), ["x-uid"] = escaped(user.uid),
    ["x-groups"] = escaped_list(user.groups), ["x-extra"] = escaped_pairs(user.extra),
    ["x-as-user"] = escaped(wish.name), ["x-as-uid"] = escaped(wish.uid),
    ["x-as-groups"] = escaped_list(wish.groups), ["x-as-extra"] = escaped_pairs(wish.extra),
    ["x-good-for"] = config.allowed_for, ["x-bad-for"] = config.denied_for,
  }
  -- Encoded values contain no space: no two questions share a key.
  local key = concat({
    question["x-user"], question["x-uid"], question["x-groups"], question["x-extra"],
    question["x-as-user"], question["x-as-uid"], question["x-as-groups"], question["x-as-extra"],
  }, " ")
  local good, bad = config.allowed_for, config.denied_for
  local result = recall_answer(impersonations, key, good, bad)
  if not result then
    local answer, body = ask(handle, "/impersonation", question)
    local status = answer[":status"]
    result = { why = body }
    if status == "200" then
      result.user = new_user(wish.name, wish.uid, completed(wish), wish.extra)
    elseif status == "400" then
      return nil, 400, result.why
    elseif status ~= "403" then
      return nil, 503, "the impersonation could not be reviewed: " .. (body or "")
    end
    keep_answer(impersonations, key, result, answer["x-keep"], good, bad)
  end
  if result.user then return result.user end
  return nil, 403, result.why or "Forbidden"
end
