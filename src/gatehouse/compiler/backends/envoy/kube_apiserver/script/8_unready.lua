-- Responses without a ready server. Envoy marks them with a header that names the sender, if the
-- script added one. Anonymous clients do not learn addresses and reasons.
local UNREADY, ANONYMOUS_NAME = "x-gh-unready", "system:anonymous"
local NO_SERVER, AGAIN = '"no ready endpoints"', 2
local reasons, requested_at = "", 0

-- Ask the reviewer for the reasons, as the inside of a JSON string. One answer serves all clients.
local function unready_reasons(handle, now)
  if time() - requested_at >= AGAIN then
    requested_at = time()
    local answer, body = ask(handle, "/unready", { ["x-cluster"] = escaped(now.cluster) })
    reasons = answer[":status"] == "200" and body or ""
  end
  return reasons
end

function envoy_on_response(handle)
  local headers = handle:headers()
  local sender_name = headers:get(UNREADY)
  if not sender_name then return end
  headers:remove(UNREADY)
  if sender_name == "" or sender_name == "-" or sender_name == ANONYMOUS_NAME then return end
  local why = unready_reasons(handle, config)
  local body = why ~= "" and handle:body()
  if not body then return end
  local text = body:getBytes(0, body:length())
  local from, to = find(text, NO_SERVER, 1, true)
  if from then body:setBytes(sub(text, 1, to - 1) .. ": " .. why .. sub(text, to)) end
end
