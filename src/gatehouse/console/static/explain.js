/** Explain: a form for a request, and the answer along listener, match, backends and data planes. */

import { definitions, element, section } from "./dom.js";
import { fullName, read, store } from "./store.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
const last = { method: "GET", url: "", headers: "", gateway: "", client: "" };

export function explain(view, parameters) {
  if (parameters.has("url")) last.url = parameters.get("url");
  const result = element("section", { "aria-label": "Answer", "aria-live": "polite" });
  const method = element("select", { id: "method" }, METHODS.map((name) =>
    element("option", { value: name, selected: name === last.method }, name)));
  const url = element("input", { id: "url", required: true, value: last.url, placeholder: "https://shop.example/api" });
  const headers = element("textarea", { id: "headers", rows: "2", placeholder: "x-version: 2" }, last.headers);
  const gateways = ["", ...store.of("Gateway").map(fullName).sort()];
  const gateway = element("select", { id: "gateway" }, gateways.map((name) =>
    element("option", { value: name, selected: name === last.gateway }, name || "by the URL")));
  const client = element("input", { id: "client", value: last.client, placeholder: "192.0.2.7" });
  const field = (label, input) => [element("label", { for: input.id }, label), input];

  async function submit(event) {
    event.preventDefault();
    Object.assign(last, { method: method.value, url: url.value.trim(), headers: headers.value,
      gateway: gateway.value, client: client.value.trim() });
    const query = new URLSearchParams({ method: last.method, url: last.url, gateway: last.gateway, client: last.client });
    for (const line of last.headers.split("\n").filter((text) => text.trim())) query.append("header", line);
    result.replaceChildren(element("p", null, "Compiling…"));
    try {
      result.replaceChildren(...answer(await read("explain", query)));
    } catch (error) {
      result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
    }
  }

  view.replaceChildren(element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "Explain a request" },
    element("h2", null, "Explain a request"),
    element("form", { onsubmit: submit }, field("Method", method), field("URL", url),
      field("Headers, one a line", headers), field("Gateway", gateway), field("Client address", client),
      element("button", { type: "submit" }, "Explain")), result));
  return () => {};
}

function endpointText({ address, ready, terminating }) {
  return ready ? address : `${address} (${terminating ? "terminating" : "not ready"})`;
}

function answer(found) {
  const { listener } = found;
  const steps = [
    ["Gateway", `${found.gateway}, class ${found.gatewayClass}`, found.addresses.join(", ")],
    listener && ["Listener", `${listener.name} of ${listener.object}`,
      `${listener.port}/${listener.protocol} ${listener.hostname} ${listener.problems.join("; ")}`],
    found.hostname !== null && ["Hostname", found.hostname || "any", ""],
    found.match && ["Match", found.match, ""],
    ...found.applied.map((item) => ["Applies", `${item.type}: ${item.source}`, item.detail]),
    ...found.backends.map((item) => ["Backend", `${item.backend}, weight ${item.weight} (${item.share} %)`,
      item.problem || item.endpoints.map(endpointText).join(", ")]),
  ].filter(Boolean);
  return [
    element("p", { class: `answer ${found.answer.verdict === "forwarded" ? "good" : "bad"}` }, found.answer.cause),
    definitions([["Request", found.request]]),
    element("ol", { class: "steps" }, steps.map(([name, text, more]) =>
      element("li", null, element("strong", null, `${name}: `), text, more ? element("div", null, more) : null))),
    section(found.match ? "Tried before" : "Tried",
      found.ruledOut.map((item) => `${item.match} ${item.reasons.join(" and ")}`)),
    section("Not served here", found.unattached.map((item) => `${item.route}: ${item.reason}`)),
    section("Data planes", found.dataPlanes.map((item) =>
      `Pod ${item.pod}: ${item.ready ? "ready" : "not ready"}, version ${item.confirmedVersion || "unknown"} ${item.problem}`)),
    section("Notes", found.notes),
  ].filter(Boolean);
}
