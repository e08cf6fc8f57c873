/** Traffic of routes or backends, measured while the view is open. */

import { element } from "./dom.js";
import { read, repeat } from "./store.js";

const LIMIT = 200;
const percent = (share) => `${(share * 100).toFixed(1)} %`;
/** Return a duration as text. */
export const milliseconds = (seconds) => (seconds === null ? "-" : `${(seconds * 1000).toPrecision(3)} ms`);
let by = "route";

/** Return a table of the rows of a report. */
export function trafficTable(report, source) {
  const columns = [
    ["Requests/s", (row) => row.requestsPerSecond.toFixed(1)], ["4xx", (row) => percent(row.clientErrors)],
    ["5xx", (row) => percent(row.serverErrors)],
    ...(source === "route" ? [
      ["p50", (row) => milliseconds(row.medianSeconds)], ["p99", (row) => milliseconds(row.p99Seconds)],
      ["Retries/s", (row) => row.retriesPerSecond.toFixed(1)],
      ["Sent bytes/s", (row) => row.sentBytesPerSecond.toFixed(0)]] : []),
  ];
  const cells = (row) => columns.map(([, value]) => element("td", { class: "number" }, value(row)));
  return element("table", null,
    element("caption", null, `${report.dataPlanes} data planes, ${report.seconds.toFixed(1)} s` +
      (report.rows.length > LIMIT ? `, busiest ${LIMIT} of ${report.rows.length}` : "")),
    element("thead", null, element("tr", null, element("th", { scope: "col" }, source === "route" ? "Rule of a route" : "Backend"),
      columns.map(([name]) => element("th", { class: "number", scope: "col" }, name)))),
    element("tbody", null, report.rows.slice(0, LIMIT).map((row) =>
      element("tr", null, element("th", { scope: "row" }, row.name || "(no route)"), cells(row)))));
}

export function traffic(view) {
  const result = element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "Traffic" }, "Measuring…");
  const choice = element("select", { onchange: () => { by = choice.value; end(); end = start(); } },
    ["route", "backend"].map((name) => element("option", { value: name, selected: name === by }, name)));
  view.replaceChildren(element("div", { class: "filters" }, element("label", null, "Requests by ", choice)), result);
  function start() {
    return repeat(2, async (ended) => {
      const source = by;
      try {
        const report = await read("traffic", { by: source });
        if (ended()) return;
        result.replaceChildren(
          ...report.problems.map((text) => element("p", { class: "error" }, `not known: ${text}`)),
          trafficTable(report, source));
      } catch (error) {
        if (!ended()) result.replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
      }
    });
  }
  let end = start();
  return () => end();
}
