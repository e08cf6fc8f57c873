-- Metric labels of a request. Clients choose paths freely, and labels stay in memory: resources
-- that are neither Kubernetes' own nor named by a policy share one label. The names are one text
-- with commas between them: a table of them, in every chain and worker, has three times the size,
-- and the labels are cached with a decision anyway.
local KNOWN = [[
,bindings,componentstatuses,configmaps,endpoints,events,limitranges,namespaces,namespaces/finalize,
,namespaces/status,nodes,nodes/proxy,nodes/status,persistentvolumeclaims,
,persistentvolumeclaims/status,persistentvolumes,persistentvolumes/status,pods,pods/attach,
,pods/binding,pods/ephemeralcontainers,pods/eviction,pods/exec,pods/log,pods/portforward,pods/proxy,
,pods/resize,pods/status,podtemplates,replicationcontrollers,replicationcontrollers/scale,
,replicationcontrollers/status,resourcequotas,resourcequotas/status,secrets,serviceaccounts,
,serviceaccounts/token,services,services/proxy,services/status,mutatingwebhookconfigurations,
,validatingwebhookconfigurations,mutatingadmissionpolicies,mutatingadmissionpolicybindings,
,validatingadmissionpolicies,validatingadmissionpolicies/status,validatingadmissionpolicybindings,
,customresourcedefinitions,customresourcedefinitions/status,apiservices,apiservices/status,
,controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,
,replicasets,replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,
,statefulsets/status,selfsubjectreviews,tokenreviews,localsubjectaccessreviews,
,selfsubjectaccessreviews,selfsubjectrulesreviews,subjectaccessreviews,horizontalpodautoscalers,
,horizontalpodautoscalers/status,cronjobs,cronjobs/status,jobs,jobs/status,
,certificatesigningrequests,certificatesigningrequests/approval,certificatesigningrequests/status,
,clustertrustbundles,podcertificaterequests,podcertificaterequests/status,leases,leasecandidates,
,endpointslices,flowschemas,flowschemas/status,prioritylevelconfigurations,
,prioritylevelconfigurations/status,ingressclasses,ingresses,ingresses/status,ipaddresses,
,networkpolicies,servicecidrs,servicecidrs/status,runtimeclasses,poddisruptionbudgets,
,poddisruptionbudgets/status,clusterrolebindings,clusterroles,rolebindings,roles,deviceclasses,
,devicetaintrules,resourceclaims,resourceclaims/status,resourceclaimtemplates,resourceslices,
,priorityclasses,csidrivers,csinodes,csistoragecapacities,storageclasses,volumeattachments,
,volumeattachments/status,volumeattributesclasses,storageversions,
]]

-- Verbs are padded to the longest: Envoy truncates the text to this width and counts by the verb
-- only.
local COUNTED = { other = true, connect = true }
for item in gmatch(
  "get list watch create update patch delete deletecollection post put head options", "%S+"
) do COUNTED[item] = true end
for item in pairs(COUNTED) do COUNTED[item] = format("%-16s", item) end

-- Return whether the name of a resource can be written in a header.
local function is_label(name)
  return #name <= 253 and find(name, "^[a-z0-9./-]+$") ~= nil
end

-- Return a scope with the labels of a request. As in kube-apiservers, long-running requests other
-- than watches are counted as connections.
local function labelled(config, scope, request)
  local verb, resource = request.verb, request.resource
  if verb ~= "watch" and request.long and resource then verb = "connect" end
  if not resource then
    resource = "nonresource"
  elseif not (config.named[resource]
      or is_label(resource) and find(KNOWN, "," .. resource .. ",", 1, true)) then
    resource = "other"
  end
  return (COUNTED[verb] or COUNTED.other) .. ":" .. scope .. ":" .. resource
end
