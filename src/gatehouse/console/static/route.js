/** Route: matches in the order in which they are tried, what applies, backends, and live traffic. */

import { definitions, element, problem, section, table } from "./dom.js";
import { fullName, key, read, repeat, store } from "./store.js";
import { milliseconds } from "./traffic.js";

const KINDS = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];
const CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
const LISTED = 100;
const last = { text: "", chosen: null };

/** Return the address of the view of a route. */
export function routeAddress({ kind, namespace, name }) {
  return `#route?${new URLSearchParams({ kind, namespace, name })}`;
}

export function route(view, parameters) {
  if (parameters.has("name")) {
    last.chosen = Object.fromEntries(["kind", "namespace", "name"].map((name) => [name, parameters.get(name) ?? ""]));
  } else if (parameters.has("choose")) last.chosen = null;
  const page = element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "Route" });
  view.replaceChildren(page);
  return last.chosen ? describe(page, last.chosen) : choose(page);
}

/** Show the routes whose name or hostname has a text. */
function choose(page) {
  const text = element("input", { type: "search", value: last.text, placeholder: "name or hostname",
    oninput: () => { last.text = text.value; update(); } });
  const count = element("p", { role: "status" });
  const list = element("ul");
  function update() {
    const word = last.text.trim().toLowerCase();
    const found = store.of(...KINDS).filter((item) =>
      [fullName(item), ...item.hostnames].some((name) => name.toLowerCase().includes(word)));
    count.textContent = found.length > LISTED ? `first ${LISTED} of ${found.length} routes` : `${found.length} routes`;
    list.replaceChildren(...found.slice(0, LISTED).map((item) => element("li", null,
      element("a", { href: routeAddress(item) }, `${item.kind} ${fullName(item)}`), ` ${item.hostnames.join(", ")}`)));
  }
  page.replaceChildren(element("h2", null, "Choose a route"), element("label", null, "Filter ", text), count, list);
  store.addEventListener("change", update);
  update();
  return () => store.removeEventListener("change", update);
}

function describe(page, chosen) {
  const title = `${chosen.kind} ${fullName(chosen)}`;
  const state = element("section", { "aria-label": "State" });
  const content = element("section", { "aria-label": "Configuration" }, element("p", null, "Compiling…"));
  let revision = "";
  let next = 0;
  let cells = [];
  page.replaceChildren(element("p", null, element("a", { href: "#route?choose" }, "All routes")),
    element("h2", null, title), state, content);

  function changed() {
    const item = store.objects.get(key(chosen));
    state.replaceChildren(...(item ? [
      definitions([["Hostnames", item.hostnames.join(", ")], ["Parents", item.parents.join(", ")], ...Object.entries(item.state)]),
      ...item.details.map(problem)] : []));
  }
  const endReport = repeat(3, async (ended) => {
    const started = performance.now();
    if (started < next) return;
    try {
      const change = await read("route", { ...chosen, since: revision });
      if (ended()) return;
      revision = change.revision;
      if (change.report === null) return;
      cells = [];
      content.replaceChildren(...configuration(change.report, cells));
    } catch (error) {
      if (ended()) return;
      revision = "";
      content.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
    // A report compiles all objects: it takes at most a tenth of the time.
    next = performance.now() + 10 * (performance.now() - started);
  });
  const endTraffic = repeat(2, async (ended) => {
    try {
      const [rules, backends] = await Promise.all([read("traffic"), read("traffic", { by: "backend" })]);
      if (ended()) return;
      for (const cell of cells) cell(rules, backends);
    } catch (error) {
      // The connection state in the header reports it.
      if (!ended()) console.warn(error.message);
    }
  });
  store.addEventListener("change", changed);
  changed();
  return () => { endReport(); endTraffic(); store.removeEventListener("change", changed); };
}

/** Return the elements of a report. `cells` gets functions that show traffic. */
function configuration(report, cells) {
  return [
    section("Not served", report.refusals.map((item) => (item.parent ? `${item.parent}: ${item.reason}` : item.reason))),
    ...report.hostnames.map(matches),
    ...report.rules.map((rule) => ruleSection(rule, cells)),
    section("Notes", [...report.notes,
      "Proxies measure durations by rule. The requests of a backend are those of all routes that use it."]),
  ].filter(Boolean);
}

function matches(host) {
  const name = host.hostname || "any hostname";
  return table(`Matches of ${name} at Gateway ${host.gateway}, port ${host.port}/${host.protocol}`,
    ["Order", "Match", "Action", "Rule", "Problems"],
    host.matches.map((match) => element("tr", null,
      element("td", null, `${match.place} of ${host.total}`),
      element("th", { scope: "row" }, match.needs || "every connection"),
      element("td", null, match.action), element("td", null, match.rule),
      element("td", null, match.problems.join("; ")))));
}

function ruleSection(rule, cells) {
  const live = element("p", { class: "live" }, "Measuring…");
  cells.push((rules) => { live.textContent = ruleTraffic(rules, rule.label); });
  const rows = rule.backends.map((backend) => {
    const traffic = element("td", null, "…");
    cells.push((_, backends) => { traffic.textContent = backendTraffic(backends, backend.label); });
    const ready = backend.endpoints.filter((item) => item.ready).length;
    return element("tr", null, element("th", { scope: "row" }, backend.backend),
      element("td", null, `${backend.weight} (${backend.share} %)`),
      element("td", null, `${ready} of ${backend.endpoints.length} ready`),
      traffic, element("td", null, backend.problem));
  });
  return element("section", { "aria-label": `Rule ${rule.rule} at Gateway ${rule.gateway}` },
    element("h3", null, `Rule ${rule.rule} at Gateway ${rule.gateway}`), live,
    rule.applied.length ? element("ul", null, rule.applied.map((item) =>
      element("li", null, `${item.type}: ${item.source}${item.detail ? ` (${item.detail})` : ""}`))) : null,
    rows.length ? table("Backends", ["Backend", "Weight", "Endpoints", "Requests", "Problem"], rows) : null);
}

function ruleTraffic(report, label) {
  const row = report.rows.find((item) => item.name === label);
  const l4 = report.connections.find((item) => item.name === label);
  if (l4) {
    return `${l4.connectionsPerSecond.toFixed(1)} connections/s, ${(l4.failed * 100).toFixed(1)} % failed`;
  }
  if (!row) return report.problems.length ? `Requests are not known: ${report.problems.join("; ")}` : "No requests yet";
  return `${rates(row)}, p50 ${milliseconds(row.medianSeconds)}, p99 ${milliseconds(row.p99Seconds)}`;
}

function backendTraffic(report, label) {
  // One NGINX upstream with several backends has a label that names them all.
  const named = (item) => item.name.split(",").includes(label);
  const shared = (item) => (item.name === label ? "" : ` (with ${item.name})`);
  const requests = report.rows.filter(named).map((item) => rates(item) + shared(item));
  const connections = report.connections.filter(named).map((item) =>
    `${item.connectionsPerSecond.toFixed(1)} connections/s${shared(item)}`);
  return [...requests, ...connections].join("; ") || "-";
}

function rates(row) {
  const parts = CLASSES.filter((name) => row.statusClasses[name])
    .map((name) => `${name} ${row.statusClasses[name].toFixed(1)}`);
  return `${row.requestsPerSecond.toFixed(1)} requests/s${parts.length ? `: ${parts.join(", ")}` : ""}`;
}
