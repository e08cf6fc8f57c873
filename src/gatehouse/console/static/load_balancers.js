/** Load balancers outside the cluster: hosts, what differs on them, and upstreams. */

import { definitions, element, problem, table } from "./dom.js";
import { read, repeat, store } from "./store.js";

const PAGE = 20;
const LISTED = 100;
const KIND = "ExternalLoadBalancer";
const STATES = { True: ["good", "synchronized"], Pending: [null, "behind"], False: ["bad", "differs"] };

export function loadBalancers(view) {
  let balancers = null;
  let error = "";
  let limit = PAGE;
  const page = element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "Load balancers" });
  view.replaceChildren(page);

  function update() {
    const denied = store.missingPermission(KIND);
    const focused = document.activeElement?.id === "more";
    page.replaceChildren(...[
      denied && element("p", { class: "error" }, denied),
      error && element("p", { class: "error", role: "alert" }, error),
      !balancers && !error && element("p", null, "Reading…"),
      balancers && !balancers.length && !denied && element("p", null, "There are no ExternalLoadBalancers."),
      ...(balancers ?? []).slice(0, limit).map(balancerSection),
      balancers?.length > limit && element("button", { id: "more", type: "button",
        onclick: () => { limit += PAGE; update(); } }, `Show more (${balancers.length - limit})`),
    ].filter(Boolean));
    if (focused) document.getElementById("more")?.focus();
  }
  const end = repeat(2, async (ended) => {
    try {
      const result = await read("load-balancers");
      if (ended()) return;
      [balancers, error] = [result, ""];
    } catch (failure) {
      if (ended()) return;
      error = failure.message;
    }
    update();
  });
  store.addEventListener("change", update);
  update();
  return () => { end(); store.removeEventListener("change", update); };
}

function balancerSection(balancer) {
  const object = store.objects.get([KIND, ...balancer.name.split("/")].join("\n"));
  return element("section", { "aria-label": `Load balancer ${balancer.name}` },
    element("h2", null, `ExternalLoadBalancer ${balancer.name}`),
    definitions([["Desired version", balancer.version], ["Hosts", balancer.message]]),
    (object?.details ?? []).map(problem),
    balancer.hosts.length ? table("Hosts", ["Host", "Server", "API", "Version", "State", "Difference"],
      balancer.hosts.map(hostRow)) : null,
    balancer.upstreams.length ? upstreams(balancer.upstreams) : null);
}

function hostRow(host) {
  const [style, text] = STATES[host.synced];
  return element("tr", null, element("th", { scope: "row" }, host.name), element("td", null, host.server),
    element("td", null, host.apiVersion), element("td", null, host.version), element("td", { class: style }, text),
    element("td", null, host.error, host.failing.length ? element("ul", null, host.failing.map((item) =>
      element("li", null, `${item.upstream}: ${item.error}`))) : null));
}

function upstreams(items) {
  const more = items.length > LISTED ? `, first ${LISTED} of ${items.length}` : "";
  return table(`Upstreams${more}`, ["Upstream", "Context", "Service"], items.slice(0, LISTED).map((item) =>
    element("tr", null, element("th", { scope: "row" }, item.name), element("td", null, item.context),
      element("td", null, item.service))));
}
