/** Views by the fragment of the URL, notices about missing permissions, and the state of the connection. */

import { element } from "./dom.js";
import { explain } from "./explain.js";
import { kubeApiservers } from "./kube_apiservers.js";
import { loadBalancers } from "./load_balancers.js";
import { problems } from "./problems.js";
import { route } from "./route.js";
import { store } from "./store.js";
import { topology } from "./topology.js";
import { traffic } from "./traffic.js";

const VIEWS = new Map([
  ["topology", { label: "Topology", show: topology }],
  ["route", { label: "Route", show: route }],
  ["kube-apiservers", { label: "kube-apiservers", show: kubeApiservers }],
  ["load-balancers", { label: "Load balancers", show: loadBalancers }],
  ["problems", { label: "Problems", show: problems }],
  ["traffic", { label: "Traffic", show: traffic }],
  ["explain", { label: "Explain", show: explain }],
]);
const view = document.getElementById("view");
let leave = () => {};

function open() {
  const [name, query] = location.hash.slice(1).split("?");
  const known = VIEWS.has(name) ? name : "topology";
  leave();
  document.getElementById("views").replaceChildren(...[...VIEWS].map(([title, { label }]) =>
    element("a", { href: `#${title}`, "aria-current": title === known ? "page" : null }, label)));
  document.title = `${known} - Gatehouse console`;
  leave = VIEWS.get(known).show(view, new URLSearchParams(query ?? ""));
}

function notice() {
  const kinds = store.notPermitted.map((item) => (item.namespace ? `${item.kind} in ${item.namespace}` : item.kind));
  document.getElementById("connection").textContent = store.state;
  const nothing = store.objects.size === 0 && kinds.length > 0;
  document.getElementById("notices").replaceChildren(
    ...(kinds.length ? [element("p", null, nothing
      ? "You have no permission to read anything that the console shows. Ask an administrator for the role view, or name a namespace: gatehouse console -n NAMESPACE."
      : `Not permitted, and not shown: ${kinds.join(", ")}`)] : []),
    ...store.interruptions.map((text) => element("p", null, `May be outdated: ${text}`)));
}

store.addEventListener("change", notice);
window.addEventListener("hashchange", open);
open();
store.start();
