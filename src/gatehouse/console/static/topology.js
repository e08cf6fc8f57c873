/** Topology: classes, Gateways, listeners, routes, kube-apiservers, Services, endpoints, data plane instances. */

import { definitions, element, problem, section } from "./dom.js";
import { rowsOf, serverState } from "./rows.js";
import { routeAddress } from "./route.js";
import { fullName, read, repeat, store } from "./store.js";
import { Tree } from "./tree.js";
import { trafficTable } from "./traffic.js";

/** Filters and expanded rows stay when the view changes. */
const state = { text: "", namespace: "", problems: false, expanded: new Map() };

export function topology(view) {
  let planes = new Map();
  let traffic = null;
  const details = element("section", { class: "details", "aria-label": "Details", tabindex: "0" });
  const count = element("span", { class: "count", role: "status" });
  const namespaces = element("select", { onchange: () => set("namespace", namespaces.value) });
  const text = element("input", { type: "search", value: state.text, placeholder: "name or hostname",
    oninput: () => set("text", text.value) });
  const only = element("input", { type: "checkbox", onchange: () => set("problems", only.checked) });
  only.checked = state.problems;
  const tree = new Tree("Topology", {
    onselect: (row) => describe(row),
    ontoggle: (row) => { state.expanded.set(row.id, !row.expanded); update(); },
  });

  function set(name, value) { state[name] = value; update(); }

  function describe(row) {
    details.replaceChildren(...(row ? contents(row, traffic) : ["no object"]));
  }

  function update() {
    const names = [...new Set([...store.objects.values()].map((item) => item.namespace))];
    const known = [...namespaces.options].map((option) => option.value);
    const wanted = ["", ...names.filter(Boolean).sort()];
    if (wanted.join("\n") !== known.join("\n")) {
      namespaces.replaceChildren(...wanted.map((name) =>
        element("option", { value: name, selected: name === state.namespace }, name || "all")));
    }
    const started = performance.now();
    const rows = rowsOf(store, state, planes);
    tree.show(rows);
    performance.measure("topology", { start: started, end: performance.now() });
    count.textContent = `${rows.filter((row) => row.object).length} objects shown`;
    describe(tree.selected);
  }

  view.replaceChildren(
    element("div", { class: "filters" },
      element("label", null, "Filter ", text), element("label", null, "Namespace ", namespaces),
      element("label", null, only, " with problems only"), count),
    element("div", { class: "split" }, tree.node, details));
  store.addEventListener("change", update);
  update();
  const end = repeat(5, async (ended) => {
    try {
      const [instances, report] = await Promise.all([read("data-planes"), read("traffic")]);
      if (ended()) return;
      planes = new Map(instances.map((plane) => [plane.pod, plane]));
      traffic = report;
      update();
    } catch (error) {
      // The connection state in the header reports it.
      if (!ended()) console.warn(error.message);
    }
  });
  return () => { end(); store.removeEventListener("change", update); };
}

/** Return the elements about a row. */
function contents(row, traffic) {
  const item = row.object;
  const title = element("h2", null, `${row.kind} ${row.text}`);
  if (!item) return [title, definitions(row.facts ?? [])];
  const facts = [
    ["Class", item.className], ["Controller", item.controller],
    ...Object.entries(item.state), ["Addresses", item.addresses.join(", ")],
    ["Hostnames", item.hostnames.join(", ")], ["Parents", item.parents.join(", ")],
    ["Gateway", item.gateway], ...(row.facts ?? []),
  ];
  const own = traffic?.rows.filter((entry) => entry.name.startsWith(`${fullName(item)}/`)) ?? [];
  const isRoute = item.kind.endsWith("Route");
  return [
    title, definitions(facts),
    ...(item.details.length ? [element("h3", null, "Problems"), ...item.details.map(problem)] : []),
    section("Listeners", item.listeners.map((listener) =>
      `${listener.name} ${listener.port}/${listener.protocol} ${listener.hostname}: Programmed ` +
      `${listener.Programmed}, routes ${listener.routes || "unknown"}`)),
    section("Servers", item.servers.map((server) => `${server.endpoint}: ${serverState(item, server)}`)),
    section("Backends", item.backends.map((backend) => `Service ${backend.service}: ${backend.summary}`)),
    isRoute && own.length ? trafficTable({ ...traffic, rows: own }, "route") : null,
    isRoute ? element("p", null, own.length ? "" : "No requests in the last seconds. ",
      element("a", { href: `#explain?url=${encodeURIComponent(`http://${exampleHost(item)}/`)}` },
        "Explain a request"), ", ",
      element("a", { href: routeAddress(item) }, "show matches and backends")) : null,
  ].filter(Boolean);
}

function exampleHost(item) {
  return (item.hostnames[0] ?? "example.test").replace(/^\*/, "any");
}
