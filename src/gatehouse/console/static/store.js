/** Objects of the topology, kept up to date while the page is visible. */

const API = "/console/api/v1/";

/** Return the JSON of a path. Rejects with the server's message. */
export async function read(path, parameters = {}) {
  const response = await fetch(`${API}${path}?${new URLSearchParams(parameters)}`);
  if (response.status === 401) throw new Error("the session ended: start gatehouse console again");
  const body = await response.json();
  if (!response.ok) throw new Error(body.error);
  return body;
}

export const key = (item) => [item.kind, item.namespace, item.name].join("\n");
export const fullName = (item) => (item.namespace ? `${item.namespace}/${item.name}` : item.name);

class Store extends EventTarget {
  objects = new Map();
  notPermitted = [];
  interruptions = [];
  state = "connecting";
  #revision = "";
  #source = null;
  #reading = null;

  /** Follow the topology while the page is visible. */
  start() {
    document.addEventListener("visibilitychange", () => this.#follow());
    this.#follow();
  }

  #follow() {
    this.#source?.close();
    this.#source = null;
    if (document.visibilityState === "hidden") return;
    this.#source = new EventSource(`${API}events`);
    this.#source.onmessage = () => this.#update();
    this.#source.onerror = () => this.#report("connection to gatehouse console lost");
  }

  #update() {
    // One request at a time: the next one starts from the revision that this one returns.
    this.#reading = (this.#reading ?? Promise.resolve()).then(async () => {
      try {
        this.#apply(await read("topology", { since: this.#revision }));
      } catch (error) {
        this.#report(error.message);
      }
    });
  }

  #apply(changes) {
    if (changes.complete) this.objects.clear();
    for (const parts of changes.removed) this.objects.delete(parts.join("\n"));
    for (const item of changes.objects) this.objects.set(key(item), item);
    this.#revision = changes.revision;
    this.notPermitted = changes.notPermitted;
    this.interruptions = changes.interruptions;
    this.#report("live");
  }

  #report(state) {
    this.state = state;
    this.dispatchEvent(new Event("change"));
  }

  /** Return a sentence about the missing permission for a kind; empty if the user may list it. */
  missingPermission(kind) {
    const missing = this.notPermitted.filter((item) => item.kind === kind);
    const places = missing.map((item) => item.namespace).filter(Boolean);
    if (!missing.length) return "";
    return `You have no permission to list ${kind}${places.length ? ` in ${places.join(", ")}` : ""}.`;
  }

  of(...kinds) {
    return [...this.objects.values()].filter((item) => kinds.includes(item.kind));
  }
}

export const store = new Store();

/** Call `work` now and every `seconds` while the page is visible, until the returned function is called. */
export function repeat(seconds, work) {
  let timer = 0;
  let ended = false;
  const step = async () => {
    if (document.visibilityState !== "hidden") await work(() => ended);
    if (!ended) timer = setTimeout(step, seconds * 1000);
  };
  step();
  return () => { ended = true; clearTimeout(timer); };
}
