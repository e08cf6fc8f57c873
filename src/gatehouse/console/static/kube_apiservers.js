/** kube-apiservers: clusters, their servers and why they are not ready, limits and who uses them. */

import { definitions, element, problem, section, table } from "./dom.js";
import { read, repeat, store } from "./store.js";

const PAGE = 10;
const KIND = "UpstreamCluster";
const last = { text: "" };
const rate = (value) => value.toFixed(1);

export function kubeApiservers(view) {
  let clusters = null;
  let traffic = null;
  let error = "";
  let limit = PAGE;
  const text = element("input", { type: "search", value: last.text, placeholder: "name or hostname",
    oninput: () => { last.text = text.value; update(); } });
  const count = element("span", { class: "count", role: "status" });
  const content = element("div");
  const page = element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "kube-apiservers" }, content);
  view.replaceChildren(element("div", { class: "filters" }, element("label", null, "Filter ", text), count), page);

  function update() {
    const denied = store.missingPermission(KIND);
    if (denied || error || !clusters) {
      content.replaceChildren(element("p", { class: denied || error ? "error" : null }, denied || error || "Reading…"));
      if (!clusters || denied) return;
    }
    const word = last.text.trim().toLowerCase();
    const chosen = clusters.filter((item) =>
      [item.name, ...item.hosts].some((name) => name.toLowerCase().includes(word)));
    count.textContent = `${chosen.length} of ${clusters.length} clusters`;
    const focused = document.activeElement?.id === "more";
    content.replaceChildren(...(error ? [element("p", { class: "error", role: "alert" }, error)] : []),
      ...(clusters.length ? [] : [element("p", null, "There are no UpstreamClusters.")]),
      ...chosen.slice(0, limit).map((item) => clusterSection(item, traffic)),
      ...(chosen.length > limit ? [element("button", { id: "more", type: "button",
        onclick: () => { limit += PAGE; update(); } }, `Show more (${chosen.length - limit})`)] : []));
    if (focused) document.getElementById("more")?.focus();
  }
  async function load(ended, path, apply) {
    try {
      const result = await read(path);
      if (ended()) return;
      error = "";
      apply(result);
    } catch (failure) {
      if (ended()) return;
      error = failure.message;
    }
    update();
  }
  const endReport = repeat(2, (ended) =>
    load(ended, "kube-apiservers", (result) => { clusters = result; }));
  const endTraffic = repeat(2, (ended) =>
    load(ended, "kube-apiserver-traffic", (result) => { traffic = result; }));
  store.addEventListener("change", update);
  update();
  return () => { endReport(); endTraffic(); store.removeEventListener("change", update); };
}

function clusterSection(cluster, traffic) {
  const own = (items) => (items ?? []).filter((item) => item.cluster === cluster.name);
  const object = store.objects.get([KIND, "", cluster.name].join("\n"));
  return element("section", { "aria-label": `UpstreamCluster ${cluster.name}` },
    element("h2", null, `UpstreamCluster ${cluster.name}`),
    definitions([["Hostnames", cluster.hosts.join(", ") || "none is served"],
      ["Requests", cluster.denied ? "all are rejected: feature gate DenyAllRequests" : ""]]),
    (object?.details ?? []).map(problem),
    section("Gateways", cluster.gateways.map((item) =>
      `${item.gateway}: Programmed ${item.programmed} ${item.message}`)),
    (traffic?.problems ?? []).map((item) => element("p", { class: "error" }, `not known: ${item}`)),
    servers(cluster, own(traffic?.servers)), limits(cluster, own(traffic?.limits)),
    busiest(own(traffic?.resources)));
}

function servers(cluster, used) {
  const known = new Set(cluster.servers.map((item) => item.address));
  const row = (endpoint, state, use) => element("tr", null, element("th", { scope: "row" }, endpoint),
    element("td", { class: state.startsWith("ready") ? "good" : state.startsWith("not ready") ? "bad" : null }, state),
    element("td", { class: "number" }, use ? use.inFlight : "-"),
    element("td", { class: "number" }, use ? rate(use.requestsPerSecond) : "-"));
  const rows = cluster.servers.map((item) => {
    const use = used.find((entry) => entry.server === item.address);
    return row(item.endpoint, serverState(item, use), use);
  });
  // Data planes know a server with a DNS name by its addresses.
  const resolved = used.filter((item) => !known.has(item.server));
  return table("Servers", ["Server", "State", "In flight", "Requests/s"],
    [...rows, ...resolved.map((item) => row(item.server, health(item), item))]);
}

function serverState(server, use) {
  if (server.disabled) return "disabled";
  if (server.problems.length) return `not ready: ${server.problems.join("; ")}`;
  return use ? health(use) : "not known";
}

function health(use) {
  const name = use.ready === use.dataPlanes ? "ready" : "not ready";
  return `${name} at ${use.ready} of ${use.dataPlanes} data planes`;
}

function limits(cluster, used) {
  const groups = [...cluster.limits.map((item) => [item.name, item.text, item.users]),
    ["", "not limited", cluster.unlimited]];
  const rows = groups.filter(([name, , users]) => users.length || used.some((item) => item.schema === name))
    .map(([name, text, users]) => element("tr", null, element("th", { scope: "row" }, name || "(none)"),
      element("td", null, text),
      element("td", null, users.map((item) => `policy ${item.policy}: ${item.users.join(" or ")}`).join("; ")),
      element("td", null, element("ul", null, used.filter((item) => item.schema === name).map((item) =>
        element("li", null, planeUse(item)))))));
  return rows.length ? table("Limits", ["Limit", "Value", "Applies to", "Use by data plane"], rows) : null;
}

function planeUse(use) {
  const rejected = Object.entries(use.rejectedPerSecond).map(([reason, value]) => `${rate(value)} ${reason}`);
  return `${use.dataPlane}: ${use.inFlight} in flight, ${use.longRunning} long-running, ` +
    `${rate(use.requestsPerSecond)} requests/s${rejected.length ? `, rejected per second: ${rejected.join(", ")}` : ""}`;
}

function busiest(used) {
  return used.length ? table("Busiest resources", ["Limit", "Verb", "Resource", "Requests/s"],
    used.map((item) => element("tr", null, element("td", null, item.schema || "(none)"),
      element("td", null, item.verb || "(no policy)"), element("th", { scope: "row" }, item.resource || "-"),
      element("td", { class: "number" }, rate(item.requestsPerSecond))))) : null;
}
