-- What a request is counted as. Clients write paths as they like, and what is counted stays in
-- memory: resources that are neither Kubernetes' own nor named by a policy are all one.
-- One text, in which every name stands between commas: a table of them, in every chain and worker,
-- has three times the size, and what a request is counted as is remembered with its decision.
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

-- Verbs are as wide as the longest: Envoy cuts the first one off, and counts by it alone.
local COUNTED = { other = true, connect = true }
for each in gmatch(
  "get list watch create update patch delete deletecollection post put head options", "%S+"
) do COUNTED[each] = true end
for each in pairs(COUNTED) do COUNTED[each] = format("%-16s", each) end

-- Whether the name of a resource can be said in a header.
local function is_label(name)
  return #name <= 253 and find(name, "^[a-z0-9./-]+$") ~= nil
end

-- A scope with what is counted of a request. As kube-apiservers count, what is no watch and goes on
-- for long is a connection.
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
