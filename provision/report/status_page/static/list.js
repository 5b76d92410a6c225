// The fleet as rows, of which only those exist that are seen.

import { duration, element, mark } from "/format.js";
import { byName } from "/store.js";

const HEIGHT = 34;
const SPARE = 8; // rows above and below what is seen
const COLUMNS = [["state", ""], ["name", "Node"], ["wave", "Wave"], ["domain", "Domain"], ["since", "For"], ["reason", "Reason"]];

export class List {
  constructor(root, store, open) {
    this.root = root;
    this.store = store;
    this.open = open;
    this.nodes = [];
    this.current = 0;
    this.heads = element("div", { class: "heads", role: "row" }, ...COLUMNS.map(([key, title]) => element("span", { class: key, role: "columnheader" }, title || "State")));
    this.spacer = element("div", { class: "spacer" });
    root.setAttribute("role", "grid");
    root.setAttribute("aria-label", "Nodes. Arrow keys move, Enter opens.");
    root.append(this.heads, this.spacer);
    this.rows = new Map(); // by index
    root.addEventListener("scroll", () => this.paint(), { passive: true });
    root.addEventListener("click", (event) => this.#pick(event.target));
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show the nodes that match, what needs somebody first; return how many. */
  draw(matches) {
    const order = new Map(Object.keys(this.store.states).map((key, index) => [key, index]));
    this.nodes = [...this.store.nodes.values()].filter(matches)
      .sort((one, other) => order.get(one.state) - order.get(other.state) || byName(one, other));
    this.current = Math.max(0, Math.min(this.current, this.nodes.length - 1));
    this.root.setAttribute("aria-rowcount", this.nodes.length + 1);
    this.spacer.style.height = `${this.nodes.length * HEIGHT}px`;
    this.#clear();
    this.paint();
    return this.nodes.length;
  }

  /** Make the rows that are seen now. */
  paint() {
    if (this.root.hidden) return;
    const first = Math.max(0, Math.floor(this.root.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(this.nodes.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / HEIGHT) + SPARE);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index++) {
      if (this.rows.has(index)) continue;
      const row = this.#row(this.nodes[index], index);
      this.rows.set(index, row);
      this.root.append(row);
    }
  }

  focus() {
    const top = this.current * HEIGHT;
    const view = this.root;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + 3 * HEIGHT > view.scrollTop + view.clientHeight) view.scrollTop = top + 3 * HEIGHT - view.clientHeight;
    this.paint();
    this.rows.get(this.current)?.focus({ preventScroll: true });
  }

  #clear() {
    const had = this.root.contains(document.activeElement);
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    if (had) queueMicrotask(() => this.focus());
  }

  #row(node, index) {
    const state = this.store.state(node);
    const since = node.since === null ? "" : duration(this.store.now() - node.since);
    const row = element("div", { class: "row", role: "row", "aria-rowindex": index + 2, tabindex: index === this.current ? "0" : "-1", "data-index": index },
      element("span", { class: "state", role: "gridcell" }, mark(state), element("span", { class: "state-name" }, state.title)),
      ...[["name", node.name], ["wave", node.wave], ["domain", node.domain], ["since", since], ["reason", node.reason]]
        .map(([key, text]) => element("span", { class: key, role: "gridcell", title: key === "reason" ? text : false }, text)));
    row.style.top = `${HEIGHT + index * HEIGHT}px`;
    return row;
  }

  #pick(target) {
    const row = target.closest("[data-index]");
    if (!row) return;
    this.#go(Number(row.dataset.index));
    this.open(this.nodes[this.current].name);
  }

  #go(index) {
    this.rows.get(this.current)?.setAttribute("tabindex", "-1");
    this.current = Math.max(0, Math.min(index, this.nodes.length - 1));
    this.rows.get(this.current)?.setAttribute("tabindex", "0");
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.nodes.length) return;
    const page = Math.floor(this.root.clientHeight / HEIGHT) - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") this.open(this.nodes[this.current].name);
    else if (event.key in steps) {
      this.#go(this.current + steps[event.key]);
      this.focus();
    } else return;
    event.preventDefault();
  }
}
