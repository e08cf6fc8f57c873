/** A tree of rows of which only the visible ones are in the document. */

import { element } from "./dom.js";

const ROW = 28;
const MARGIN = 10;

/** Rows have: id, level, expandable, expanded, good (true, false or null), kind, text, more. */
export class Tree {
  #rows = [];
  #selected = 0;
  #id = "";

  constructor(label, { onselect, ontoggle }) {
    this.onselect = onselect;
    this.ontoggle = ontoggle;
    this.content = element("div", { class: "rows", role: "presentation" });
    this.node = element("div", { class: "list", role: "tree", tabindex: "0", "aria-label": label,
      onkeydown: (event) => this.#key(event), onscroll: () => this.#schedule() }, this.content);
    new ResizeObserver(() => this.#render()).observe(this.node);
  }

  /** Show other rows. The selected row stays selected if it still exists. */
  show(rows) {
    this.#rows = rows;
    const index = rows.findIndex((row) => row.id === this.#id);
    this.#selected = index >= 0 ? index : Math.min(this.#selected, Math.max(rows.length - 1, 0));
    this.content.style.height = `${rows.length * ROW}px`;
    this.#render();
  }

  get selected() { return this.#rows[this.#selected]; }

  /** Select the row with an id, if it is shown. */
  choose(id) {
    const index = this.#rows.findIndex((row) => row.id === id);
    if (index >= 0) this.#move(index);
  }

  #schedule() {
    this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.#render(); });
  }

  #render() {
    const top = this.node.scrollTop;
    const first = Math.max(Math.floor(top / ROW) - MARGIN, 0);
    const last = Math.min(Math.ceil((top + this.node.clientHeight) / ROW) + MARGIN, this.#rows.length);
    const nodes = this.#rows.slice(first, last).map((row, offset) => this.#node(row, first + offset));
    // The selected row is in the document also if it is not visible: aria-activedescendant names it.
    if (this.#rows.length && (this.#selected < first || this.#selected >= last)) {
      nodes.push(this.#node(this.selected, this.#selected));
    }
    this.content.replaceChildren(...nodes);
    if (this.#rows.length) this.node.setAttribute("aria-activedescendant", `row-${this.#selected}`);
    else this.node.removeAttribute("aria-activedescendant");
  }

  #node(row, index) {
    const mark = row.good === null ? "" : row.good ? "✓" : "✗";
    const state = row.good === null ? "" : row.good ? "good" : "bad";
    const arrow = row.expandable ? (row.expanded ? "▾" : "▸") : "";
    const node = element("div", { class: "row", role: "treeitem", id: `row-${index}`,
      "aria-level": row.level + 1, "aria-setsize": row.size, "aria-posinset": row.position,
      "aria-selected": String(index === this.#selected),
      "aria-expanded": row.expandable ? String(row.expanded) : null,
      onclick: (event) => { this.#move(index);
        if (event.target.dataset.toggle !== undefined) this.ontoggle(row); } },
    element("span", { class: "mark", "data-toggle": row.expandable, "aria-hidden": "true" }, arrow),
    element("span", { class: `mark ${state}`, role: mark ? "img" : null,
      "aria-label": mark ? (row.good ? "good" : "problem") : null }, mark),
    element("span", { class: "kind" }, `${row.kind} `), row.text,
    element("span", { class: "more" }, row.more ?? ""));
    node.style.top = `${index * ROW}px`;
    node.style.paddingLeft = `${0.5 + row.level * 1.3}rem`;
    return node;
  }

  #move(index) {
    this.#selected = Math.max(0, Math.min(index, this.#rows.length - 1));
    this.#id = this.selected?.id ?? "";
    const top = this.#selected * ROW;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    const bottom = top + ROW - this.node.clientHeight;
    if (bottom > this.node.scrollTop) this.node.scrollTop = bottom;
    this.#render();
    if (this.selected) this.onselect(this.selected);
  }

  #key(event) {
    const row = this.selected;
    const page = Math.max(Math.floor(this.node.clientHeight / ROW) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -this.#rows.length, End: this.#rows.length };
    if (!row || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) this.#move(this.#selected + steps[event.key]);
    else if (event.key === "ArrowRight" && row.expandable) {
      if (row.expanded) this.#move(this.#selected + 1);
      else this.ontoggle(row);
    } else if (event.key === "ArrowLeft") {
      if (row.expandable && row.expanded) this.ontoggle(row);
      else this.#move(this.#parent());
    } else if (event.key === "Enter" || event.key === " ") {
      if (row.expandable) this.ontoggle(row);
    } else return;
    event.preventDefault();
  }

  #parent() {
    const level = this.selected.level;
    for (let index = this.#selected; index > 0; index -= 1) {
      if (this.#rows[index].level < level) return index;
    }
    return this.#selected;
  }
}
