// The fleet as cells, by wave and domain. Cells are made once; a change touches the cells of its nodes alone.

import { element } from "/format.js";
import { byName, byTitle } from "/store.js";

const DENSE = 600; // from so many nodes on, cells are small
const SCATTERED = "no domain";

export class Grid {
  constructor(root, store, open) {
    this.root = root;
    this.store = store;
    this.open = open;
    this.cells = new Map(); // by the node's number
    this.order = [];
    this.focused = null;
    root.addEventListener("click", (event) => this.#pick(event.target));
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("focusin", (event) => this.#rove(event.target));
  }

  /** Draw all nodes, grouped by "wave", "domain" or "state". */
  draw(grouping) {
    const kept = this.focused?.number;
    const had = this.root.contains(document.activeElement);
    this.cells.clear();
    this.order = [];
    this.grouping = grouping;
    this.root.classList.toggle("dense", this.store.nodes.size >= DENSE);
    const groups = this.#groups(grouping);
    this.root.replaceChildren(...groups.map(([title, nodes]) => this.#group(title, nodes, groups.length)));
    const cell = this.cells.get(kept) ?? this.order[0];
    this.focused = null;
    if (cell) this.#rove(cell);
    if (had) cell?.focus();
  }

  /** Bring nodes up to date. */
  update(nodes) {
    if (this.grouping === "state") return this.draw("state");
    for (const node of nodes) {
      const cell = this.cells.get(node.number);
      if (cell && cell.dataset.state !== node.state) this.#dress(cell, node);
    }
  }

  /** Show the nodes that match; return how many. */
  filter(matches) {
    let shown = 0;
    for (const [number, cell] of this.cells) {
      const visible = matches(this.store.nodes.get(number));
      if (cell.hidden === visible) cell.hidden = !visible;
      shown += visible;
    }
    for (const block of this.root.querySelectorAll(".block, .group")) {
      block.hidden = !block.querySelector(".mark:not([hidden])");
    }
    if (this.focused?.cell.hidden) {
      const first = this.order.find((cell) => !cell.hidden);
      if (first) this.#rove(first);
    }
    return shown;
  }

  select(node) {
    this.root.querySelector("[aria-selected]")?.removeAttribute("aria-selected");
    this.cells.get(node?.number)?.setAttribute("aria-selected", "true");
  }

  focus(node) {
    const cell = this.cells.get(node?.number) ?? this.focused?.cell;
    cell?.scrollIntoView({ block: "nearest" });
    cell?.focus();
  }

  reveal(title) {
    const found = [...this.root.querySelectorAll(".group")].find((group) => group.dataset.title === title);
    found?.scrollIntoView({ block: "start", behavior: "smooth" });
    found?.querySelector(".mark:not([hidden])")?.focus({ preventScroll: true });
  }

  nodeOf(target) {
    const cell = target.closest?.("[data-number]");
    return cell && this.store.nodes.get(Number(cell.dataset.number));
  }

  #groups(grouping) {
    const nodes = [...this.store.nodes.values()];
    const waves = (this.store.head?.waves ?? []).map(([title]) => title);
    if (grouping === "state") {
      return Object.keys(this.store.states)
        .map((key) => [this.store.states[key].title, nodes.filter((node) => node.state === key)])
        .filter(([, found]) => found.length);
    }
    if (grouping === "domain" || !waves.length) return nodes.length ? [["", nodes]] : [];
    const groups = new Map([...waves, ""].map((title) => [title, []]));
    for (const node of nodes) (groups.get(node.wave) ?? groups.get("")).push(node);
    return [...groups].filter(([, found]) => found.length);
  }

  #group(title, nodes, groups) {
    const shown = title || (groups > 1 ? "in no wave" : "");
    const domains = new Map();
    for (const node of nodes) {
      const domain = this.grouping === "state" ? "" : node.domain;
      if (!domains.has(domain)) domains.set(domain, []);
      domains.get(domain).push(node);
    }
    const blocks = [...domains].sort(([one], [other]) => (!one) - (!other) || byTitle(one, other));
    const made = element("section", { class: "group", role: "rowgroup", "aria-label": shown || "all nodes", "data-title": title });
    if (shown) made.append(element("header", {}, element("h3", {}, shown), element("span", { class: "muted" }, `${nodes.length.toLocaleString("en")}`)));
    made.append(element("div", { class: "blocks" }, ...blocks.map(([domain, found]) => this.#block(domain, found, blocks.length))));
    return made;
  }

  #block(domain, nodes, blocks) {
    const whole = blocks === 1 && !domain;
    const cells = element("div", { class: whole ? "cells wide" : "cells", role: "row" });
    if (!whole) cells.style.setProperty("--columns", Math.min(nodes.length, Math.max(4, Math.ceil(Math.sqrt(nodes.length * 2)))));
    for (const node of nodes.sort(byName)) {
      const cell = element("span", { role: "gridcell", tabindex: "-1", "data-number": node.number });
      this.#dress(cell, node);
      this.cells.set(node.number, cell);
      this.order.push(cell);
      cells.append(cell);
    }
    const title = domain || SCATTERED;
    return element("div", { class: whole ? "block whole" : "block" }, whole ? "" : element("h4", { title }, title), cells);
  }

  #dress(cell, node) {
    const state = this.store.state(node);
    cell.className = `mark ${state.tone}`;
    cell.textContent = state.mark;
    cell.dataset.state = node.state;
    cell.setAttribute("aria-label", `${node.name}: ${state.title}`);
  }

  #pick(target) {
    const node = this.nodeOf(target);
    if (node) this.open(node.name);
  }

  #rove(target) {
    const node = this.nodeOf(target);
    if (!node) return;
    if (this.focused) this.focused.cell.tabIndex = -1;
    const cell = this.cells.get(node.number);
    cell.tabIndex = 0;
    this.focused = { number: node.number, cell };
  }

  #key(event) {
    const node = this.nodeOf(event.target);
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") this.open(node.name);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") this.#move(this.cells.get(node.number), event.key);
    else return;
    event.preventDefault();
  }

  #move(cell, key) {
    const visible = this.order.filter((each) => !each.hidden);
    const index = visible.indexOf(cell);
    let to;
    if (key === "Home") to = visible[0];
    else if (key === "End") to = visible.at(-1);
    else if (key === "ArrowRight") to = visible[index + 1];
    else if (key === "ArrowLeft") to = visible[index - 1];
    else to = vertical(visible, index, key === "ArrowDown" ? 1 : -1);
    to?.focus();
    to?.scrollIntoView({ block: "nearest" });
  }
}

/** The cell below or above: the nearest in the next line of cells, whatever block it is in. */
function vertical(cells, index, step) {
  const from = cells[index].getBoundingClientRect();
  let line = null;
  let best = null;
  let least = Infinity;
  // Cells of one line need not follow one another, where blocks stand side by side: look at all, a line is the nearest y.
  for (const cell of cells) {
    const box = cell.getBoundingClientRect();
    const down = (box.top - from.top) * step;
    if (down < 2) continue;
    const across = Math.abs(box.left - from.left);
    if (line === null || down < line - 2) [line, best, least] = [down, cell, across];
    else if (down <= line + 2 && across < least) [best, least] = [cell, across];
  }
  return best;
}
