/** Elements. Values of objects are hostile: they become text nodes or attributes, never markup. */

/**
 * Return an element. `properties`: attributes, or event listeners if they begin with "on".
 * Children are elements or values that become text; null and false are left out.
 */
export function element(tag, properties, ...children) {
  const result = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) result.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) result.setAttribute(name, value === true ? "" : value);
  }
  result.append(...children.flat().filter((child) => child !== null && child !== false)
    .map((child) => (child instanceof Node ? child : shown(child))));
  return result;
}

const CONTROLS = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** Return a text in which control characters and changes of direction are visible. */
export function shown(value) {
  return String(value).replace(CONTROLS, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

/** Return a list of terms with their values. Empty values are left out. */
export function definitions(pairs) {
  const parts = pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return element("dl", null, parts.flatMap(([name, value]) => [
    element("dt", null, name), element("dd", null, value)]));
}

/** Return a section with a heading and a list; null if the list is empty. */
export function section(title, entries) {
  return entries.length
    ? element("section", null, element("h3", null, title),
      element("ul", null, entries.map((entry) => element("li", null, entry))))
    : null;
}

/** Return a table. `rows`: elements tr. */
export function table(caption, columns, rows) {
  return element("table", null, element("caption", null, caption),
    element("thead", null, element("tr", null, columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", null, rows));
}

/** Return the elements of a problem: text, remedy, document. */
export function problem(detail) {
  return element("div", { class: "problem" },
    element("p", null, detail.text), element("p", null, detail.remedy),
    element("p", { class: "document" }, "See ", element("a", { href: detail.documentation }, detail.documentation)));
}
