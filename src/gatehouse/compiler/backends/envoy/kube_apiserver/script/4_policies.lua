-- Policy selection. Policies are metadata of the virtual host, never code.

-- Sets of names: true and false stand for all names and for none.
local function compiled_names(encoded)
  if type(encoded) ~= "table" then return encoded end
  local exact = {}
  for _, item in ipairs(encoded.exact or {}) do exact[item] = true end
  return {
    exact = exact, prefixes = encoded.prefixes or {}, endings = encoded.endings or {},
    others = encoded.others or false,
  }
end

local function contains(names, value)
  if names.exact[value] then return true end
  local prefixes, endings = names.prefixes, names.endings
  for i = 1, #prefixes do
    if sub(value, 1, #prefixes[i]) == prefixes[i] then return true end
  end
  for i = 1, #endings do
    local ending = endings[i]
    if #value >= #ending and sub(value, -#ending) == ending then return true end
  end
  return false
end

local function holds(names, value)
  if names == true or names == false then return names end
  return contains(names, value) ~= names.others
end

local function holds_one(names, values)
  if names == true or names == false then return names end
  for i = 1, #values do
    if contains(names, values[i]) then return not names.others end
  end
  return names.others
end

local function compiled(encoded)
  local result = {
    cluster = encoded.cluster, denied = encoded.denied, anonymous = encoded.anonymous,
    believed = encoded.believed, good_for = encoded.good_for, bad_for = encoded.bad_for,
    allowed_for = encoded.allowed_for, denied_for = encoded.denied_for, policies = {}, named = {},
  }
  for place, item in ipairs(encoded.policies or {}) do
    local policy = {
      scope = item.scope, subset = item.subset, schema = item.schema, logged = item.logged,
      place = place - 1, rules = {},
    }
    for i, rule in ipairs(item.rules or {}) do
      local fields = {}
      for name, value in pairs(rule) do fields[name] = compiled_names(value) end
      policy.rules[i] = fields
      if type(rule.resources) == "table" then
        for _, resource in ipairs(rule.resources.exact or {}) do
          if is_label(resource) then result.named[resource] = true end
        end
      end
    end
    result.policies[place] = policy
  end
  return result
end

-- Rules that can match a user, in order, each with its policy. Calculated once per user.
local function rules_for(config, user)
  local result = {}
  for _, policy in ipairs(config.policies) do
    for _, rule in ipairs(policy.rules) do
      if holds(rule.users, user.name) and holds_one(rule.user_groups, user.groups) then
        result[#result + 1] = { rule, policy }
      end
    end
  end
  return result
end

-- Of a user's rules those that match a verb and a resource, in order. Names are evaluated later: a
-- rule that matches all of them comes last.
local function rules_of(rules, request)
  local result = {}
  for i = 1, #rules do
    local rule = rules[i][1]
    if holds(rule.verbs, request.verb) and holds(rule.resources, request.resource)
        and holds(rule.groups, request.group) then
      result[#result + 1] = rules[i]
      if rule.names == true then break end
    end
  end
  return result
end

local function policy_for(user, request, kept)
  local rules = user.rules
  if not request.resource then
    for i = 1, #rules do
      local rule = rules[i][1]
      if holds(rule.verbs, request.verb) and holds(rule.paths, request.path) then
        return rules[i][2]
      end
    end
    return nil
  end
  -- Neither the verb of a resource request nor a group contains a slash. There are at most as many
  -- entries as decisions.
  local key = request.verb .. "/" .. request.group .. "/" .. request.resource
  local result = user.narrowed[key]
  if not result then
    result = rules_of(rules, request)
    if kept then user.narrowed[key] = result end
  end
  for i = 1, #result do
    if holds(result[i][1].names, request.name) then return result[i][2] end
  end
end

-- Decisions are cached per user, by method and target. Beyond the limit all are dropped.
local MAX_DECISIONS, MAX_TARGET_BYTES = 8192, 512
local decisions, forgotten = 0, 0

local function decided(config, user, method, target)
  if user.config ~= config or user.forgotten ~= forgotten then
    if user.config ~= config then user.rules = rules_for(config, user) end
    user.config, user.forgotten, user.decisions, user.narrowed = config, forgotten, {}, {}
  end
  -- A method contains no slash, and a target starts with one: no two requests share a key.
  local key = method .. target
  local result = user.decisions[key]
  if result then return result end
  local request, status, why = parse_request(method, target)
  if not request then return { status = status, why = why } end
  local kept = #target <= MAX_TARGET_BYTES
  if kept and decisions >= MAX_DECISIONS then
    decisions, forgotten = 0, forgotten + 1
    user.forgotten, user.decisions, user.narrowed = forgotten, {}, {}
  end
  local policy = policy_for(user, request, kept)
  result = { request = request, policy = policy, events = request.events }
  if policy then
    local long = request.long and "l" or ""
    result.scope, result.logged = labelled(config, policy.scope, request), policy.logged
    local changing = (method == "GET" or method == "HEAD") and "" or "m"
    result.way, result.upgrade = policy.subset .. long .. changing, policy.subset .. long .. "u"
    if result.way == "" then result.way = nil end
  end
  if kept then
    decisions = decisions + 1
    user.decisions[key] = result
  end
  return result
end
