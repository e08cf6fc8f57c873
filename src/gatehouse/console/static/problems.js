/** Problems: every condition that is not good, with what to do. */

import { element, problem } from "./dom.js";
import { fullName, key, store } from "./store.js";

const PAGE = 100;

export function problems(view) {
  let limit = PAGE;
  function update() {
    const objects = [...store.objects.values()].filter((item) => item.problems.length);
    const total = objects.reduce((sum, item) => sum + item.problems.length, 0);
    const focused = document.activeElement?.id === "more";
    view.replaceChildren(element("div", { class: "page", tabindex: "0", role: "region", "aria-label": "Problems" },
      element("h2", null, total ? `${total} problems of ${objects.length} objects` : "No problems"),
      ...objects.slice(0, limit).map((item) => element("section", { "data-key": key(item) },
        element("h3", null, `${item.kind} ${fullName(item)}`), item.details.map(problem))),
      objects.length > limit && element("button", { id: "more", type: "button",
        onclick: () => { limit += PAGE; update(); } }, `Show more (${objects.length - limit})`)));
    if (focused) document.getElementById("more")?.focus();
  }
  store.addEventListener("change", update);
  update();
  return () => store.removeEventListener("change", update);
}
