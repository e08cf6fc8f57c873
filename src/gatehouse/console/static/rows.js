/** Rows of the topology: a pure function of objects, filters and expanded rows. */

import { fullName } from "./store.js";

const ROUTES = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];
const ATTACHED = [...ROUTES, "UpstreamCluster", "HostedAPIServer"];
const SHOWN = ["GatewayClass", "Gateway", "Pod", ...ATTACHED];

/** Return the rows, in the order of the page. `planes`: instances with versions, by Pod. */
export function rowsOf(store, state, planes) {
  const rows = [];
  const objects = [...store.objects.values()];
  const matches = matcher(state);
  const routes = byGateway(objects.filter((item) => ATTACHED.includes(item.kind) && matches(item)));
  const gateways = objects.filter((item) => item.kind === "Gateway");
  const pods = group(objects.filter((item) => item.kind === "Pod" && matches(item)), (item) => item.gateway);
  const classes = group(gateways, (item) => item.className);
  const names = new Set(gateways.map(fullName));
  const tops = [];
  const objectOf = new Map(objects.map((item) => [`${item.kind} ${fullName(item)}`, item]));
  for (const name of [...new Set([...classes.keys(),
    ...objects.filter((item) => item.kind === "GatewayClass").map((item) => item.name)])].sort()) {
    const children = (classes.get(name) ?? []).map((gateway) =>
      gatewayNode(gateway, routes.get(fullName(gateway)) ?? [], pods.get(fullName(gateway)) ?? [], planes))
      .filter((node) => node.children.some((child) => child.object) || matches(node.object));
    const object = objectOf.get(`GatewayClass ${name}`);
    if (children.length || (object && matches(object))) {
      tops.push({ id: `class ${name}`, kind: "GatewayClass", text: name, object, good: good(object),
        more: object ? object.controller : "not found", children, open: true });
    }
  }
  const orphans = [...routes].filter(([name]) => !names.has(name)).flatMap(([, list]) => list);
  const lonely = [...pods].filter(([name]) => !names.has(name)).flatMap(([, list]) => list);
  if (orphans.length + lonely.length) {
    tops.push({ id: "orphans", kind: "", text: "no Gateway", good: null, open: true, children: [
      ...[...new Set(orphans)].map((route) => routeNode(route, "orphans")),
      ...lonely.map((pod) => podNode(pod, planes))] });
  }
  const others = objects.filter((item) => !SHOWN.includes(item.kind) && matches(item));
  for (const [kind, items] of group(others, (item) => item.kind)) {
    tops.push({ id: `kind ${kind}`, kind: "", text: kind, more: String(items.length), good: null,
      open: state.problems, children: items.map((item) => leaf(item, `other ${kind}`)) });
  }
  flatten(tops, 0, state.expanded, rows);
  return rows;
}

function matcher({ text, namespace, problems }) {
  const word = text.trim().toLowerCase();
  return (item) =>
    (!namespace || item.namespace === namespace) && (!problems || item.problems.length > 0) &&
    (!word || [fullName(item), ...item.hostnames].some((name) => name.toLowerCase().includes(word)));
}

function group(items, keyOf) {
  const result = new Map();
  for (const item of items) {
    const name = keyOf(item);
    if (!result.has(name)) result.set(name, []);
    result.get(name).push(item);
  }
  return result;
}

function byGateway(routes) {
  const result = new Map();
  for (const route of routes) {
    const names = new Set(route.gateways);
    for (const name of names.size ? names : [""]) {
      if (!result.has(name)) result.set(name, []);
      result.get(name).push(route);
    }
  }
  return result;
}

const good = (object) => (object ? object.problems.length === 0 : false);

function leaf(item, parent) {
  return { id: `${parent} ${item.kind} ${fullName(item)}`, kind: item.kind, text: fullName(item),
    object: item, good: good(item), children: [] };
}

function gatewayNode(gateway, routes, pods, planes) {
  const name = fullName(gateway);
  const placeOf = (listener) => listener.name.includes("/") ? listener.name : `${name}/${listener.name}`;
  const places = new Set(gateway.listeners.map(placeOf));
  const listeners = gateway.listeners.map((listener) => ({
    id: `listener ${name} ${listener.name}`, kind: "listener", text: listener.name,
    more: `${listener.port}/${listener.protocol} ${listener.hostname}`,
    good: listener.Programmed === "True", open: true,
    facts: Object.entries(listener),
    children: routes.filter((route) => route.parents.includes(placeOf(listener)))
      .map((route) => routeNode(route, `${name} ${placeOf(listener)}`)),
  }));
  const whole = routes.filter((route) => route.parents.some((parent, index) =>
    route.gateways[index] === name && !places.has(parent))).map((route) => routeNode(route, name));
  const children = [...pods.map((pod) => podNode(pod, planes)), ...listeners, ...whole];
  return { id: `gateway ${name}`, kind: "Gateway", text: name, object: gateway, good: good(gateway),
    more: gateway.addresses.join(", "), children: children.filter(Boolean), open: true };
}

function podNode(pod, planes) {
  const plane = planes.get(fullName(pod));
  const version = plane?.confirmedVersion || "unknown";
  return { ...leaf(pod, "pod"), kind: "data plane", more: `version ${version}`,
    facts: [["Confirmed version", version], ["Metrics", plane?.problem ?? ""]] };
}

/** Return the state of a kube-apiserver of an UpstreamCluster. Only data planes check them. */
export function serverState(cluster, server) {
  if (server.disabled) return "disabled";
  return server.problems.join("; ") || (cluster.gateways.length ? "ready" : "not checked");
}

function routeNode(route, parent) {
  const id = `route ${parent} ${route.kind} ${fullName(route)}`;
  const servers = route.servers.map((server, index) => ({
    id: `${id} server ${index}`, kind: "kube-apiserver", text: server.endpoint,
    more: serverState(route, server),
    good: server.disabled || !route.gateways.length ? null : !server.problems.length, children: [] }));
  const children = [...servers, ...route.backends.map((backend) => ({
    id: `${id} ${backend.service}`, kind: "Service", text: backend.service, open: false,
    good: backend.ready > 0 || backend.external || backend.addresses.some((endpoint) => endpoint.terminating),
    more: backend.summary,
    children: backend.addresses.map((endpoint, index) => ({
      id: `${id} ${backend.service} ${index}`, kind: "endpoint", text: endpoint.address,
      more: endpoint.ready ? "ready" : endpoint.terminating ? "terminating" : "not ready",
      good: endpoint.ready || endpoint.terminating, children: [] })),
  }))];
  return { id, kind: route.kind, text: fullName(route), object: route, good: good(route),
    more: route.hostnames.slice(0, 3).join(", "), children, open: false };
}

function flatten(nodes, level, expanded, rows) {
  nodes.forEach((node, index) => {
    const expandable = node.children.length > 0;
    const isExpanded = expandable && (expanded.get(node.id) ?? node.open);
    rows.push({ ...node, level, expandable, expanded: isExpanded, size: nodes.length, position: index + 1 });
    if (isExpanded) flatten(node.children, level + 1, expanded, rows);
  });
}
