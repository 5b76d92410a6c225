// What stands above the nodes: who is at work, how far it is, and what needs somebody.

import { count, duration, element, mark, prose, segment } from "/format.js";
import { byReason } from "/store.js";

const TONES = [["ok", "done"], ["work", "out of service"], ["wait", "waiting"], ["warn", "stuck"], ["bad", "failed"], ["off", "without an upgrade"]];
const STACK_MARKS = { ok: "✓", work: "●", bad: "✕" };
const SHOWN = 5;
const NAMED = 4;
const ADDRESSED = 20; // nodes that a command names; for more it is for all of them

export class Overview {
  constructor(store, open, reveal) {
    this.store = store;
    this.open = open;
    this.reveal = reveal;
    this.unfolded = new Set();
  }

  /** Draw it all again; what has the focus keeps it. */
  draw() {
    const focused = document.activeElement?.dataset?.focus;
    this.#draw();
    if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  #draw() {
    const nodes = [...this.store.nodes.values()];
    const tones = Object.fromEntries(TONES.map(([tone]) => [tone, 0]));
    for (const node of nodes) tones[this.store.state(node).tone] += 1;
    this.#top();
    this.#notices();
    this.#progress(nodes.length, tones);
    this.#waves();
    this.#boards(nodes);
    this.#machines();
    this.tick();
  }

  /** Bring what depends on the time up to date. */
  tick() {
    const { head } = this.store;
    if (!head) return;
    const now = this.store.now();
    const left = byId("left");
    left.textContent = head.ends === null ? "" : `about ${duration(head.ends - now)} left, measured on ${count(head.measured, "node")}`;
    for (const time of document.querySelectorAll("[data-since]")) {
      time.textContent = duration(now - Number(time.dataset.since));
    }
  }

  #top() {
    const { head } = this.store;
    byId("place").textContent = head.place;
    byId("place").title = head.place;
    const since = head.engineSince === null ? "" : element("span", { "data-since": head.engineSince });
    const words = head.atWork ? [`${head.engine} is at work`] : [head.engine ? `${head.engine} is gone` : "nobody is at work"];
    const tone = head.atWork ? "busy" : head.engine ? "lost" : "";
    byId("engine").replaceChildren(element("span", { class: `dot ${tone}`, "aria-hidden": "true" }), ...words, head.atWork && since ? ", for " : "", head.atWork ? since : "");
  }

  #notices() {
    byId("notices").replaceChildren(...this.store.head.notices.map(([tone, text]) => element("p", { class: `notice ${tone}` }, ...prose(text))));
  }

  #progress(total, tones) {
    const part = total - tones.off;
    const isQuiet = !this.store.head.atWork && !(tones.ok + tones.work + tones.wait + tones.bad);
    document.querySelector("main").classList.toggle("quiet", isQuiet);
    if (!isQuiet) {
      byId("done").textContent = tones.ok.toLocaleString("en");
      byId("of").textContent = `of ${count(part, "node")} done`;
      document.title = `${tones.ok}/${part} done${tones.bad ? `, ${tones.bad} failed` : ""}: driver upgrade`;
    } else {
      byId("done").textContent = total.toLocaleString("en");
      byId("of").textContent = `${total === 1 ? "node" : "nodes"}, no upgrade of any is recorded`;
      document.title = `${count(total, "node")}${tones.warn ? `, ${tones.warn} need somebody` : ""}: grapnel`;
    }
    const some = TONES.filter(([tone]) => tones[tone]);
    byId("bar").replaceChildren(...some.map(([tone]) => segment(tone, tones[tone] / total)));
    byId("bar").setAttribute("aria-label", some.map(([tone, words]) => `${tones[tone]} ${words}`).join(", "));
    const examples = new Map(Object.values(this.store.states).map((state) => [state.tone, state]));
    byId("totals").replaceChildren(...some.map(([tone, words]) => element("li", {}, element("b", {}, tones[tone].toLocaleString("en")), ` ${examples.has(tone) ? words : tone}`)));
  }

  #waves() {
    byId("waves").replaceChildren(...this.store.head.waves.map(([title, total, done, flying, failed]) => {
      const words = [`${done} of ${total} done`, flying && `${flying} out of service`, failed && `${failed} failed`].filter(Boolean);
      const bar = element("div", { class: "bar", "aria-hidden": "true" },
        ...[["ok", done], ["work", flying], ["bad", failed], ["off", total - done - flying - failed]]
          .filter(([, number]) => number).map(([tone, number]) => segment(tone, number / total)));
      const under = flying > 0 || (done > 0 && done + failed < total);
      return element("button", { "data-focus": `wave ${title}`, "aria-current": under && "step", onclick: () => this.reveal(title) },
        element("b", { title }, title), bar, element("span", { class: "muted" }, words.join(", ")));
    }));
  }

  #boards(nodes) {
    const { states } = this.store;
    const stacks = this.store.head.stacks ?? [];
    this.#board("stacks", count(stacks.length, "stack"), stacks, (stack) => this.#stack(stack));
    const needy = nodes.filter((node) => states[node.state].needsSomebody);
    const rank = Object.keys(states);
    const groups = byReason(needy).sort((one, other) => rank.indexOf(one.state) - rank.indexOf(other.state));
    this.#board("attention", `${count(needy.length, "node")} ${needy.length === 1 ? "needs" : "need"} somebody`, groups, (group) => this.#needs(group));
    const flying = nodes.filter((node) => states[node.state].tone === "work").sort((one, other) => one.began - other.began);
    this.#board("flying", `${count(flying.length, "node")} out of service`, flying, (node) => this.#flying(node));
    const waiting = byReason(nodes.filter((node) => states[node.state].tone === "wait"));
    const unnamed = this.store.head.unnamed.map(([reason, number]) => ({ reason, number, state: "waiting", nodes: [] }));
    const total = waiting.reduce((sum, group) => sum + group.nodes.length, 0) + unnamed.reduce((sum, group) => sum + group.number, 0);
    this.#board("waiting", `${count(total, "node")} ${total === 1 ? "waits" : "wait"}`, [...waiting, ...unnamed], (group) => this.#waits(group));
  }

  /** What is known of the machines: a row for all nodes of which it is the same, as in the terminal. */
  #machines() {
    const { heads, rows, more, unknown } = this.store.head.machines;
    const root = byId("machines");
    root.hidden = !rows.length;
    root.querySelector("thead").replaceChildren(element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head))));
    root.querySelector("tbody").replaceChildren(...rows.map(([texts, ended, needs]) => element("tr", { class: needs && "needy" },
      ...texts.map((text, index) => (index ? element("td", {}, text, index === texts.length - 1 && ended !== null ? ago(ended) : "") : element("th", { scope: "row" }, text))))));
    const notes = more ? [`and ${count(more, "node")} more of which something else is so`, ...unknown] : unknown;
    root.querySelector("ul").replaceChildren(...notes.map((note) => element("li", {}, ...prose(note))));
  }

  #board(id, title, entries, render) {
    const board = byId(id);
    board.hidden = !entries.length;
    if (!entries.length) return;
    byId(`${id}-title`).textContent = title;
    const all = this.unfolded.has(id);
    board.querySelector("ol").replaceChildren(...entries.slice(0, all ? 100 : SHOWN).map(render));
    const more = board.querySelector(".more");
    more.hidden = entries.length <= SHOWN;
    more.textContent = all ? "Show fewer" : `Show ${entries.length - SHOWN} more`;
    more.onclick = () => {
      if (!this.unfolded.delete(id)) this.unfolded.add(id);
      this.draw();
    };
  }

  #stack([name, state, tone, progress, driver, message, troubles]) {
    return element("li", {}, mark({ tone, mark: STACK_MARKS[tone] ?? "·" }),
      element("p", {}, element("b", {}, name), ` ${state}, ${progress} as declared${driver ? `, driver ${driver}` : ""}`),
      message && element("p", { class: "why muted" }, message),
      ...troubles.slice(0, SHOWN).map(([node, why]) => element("p", { class: "why" }, element("b", {}, node), `: ${why}`)),
      troubles.length > SHOWN ? element("p", { class: "why muted" }, `and ${count(troubles.length - SHOWN, "other reason")}`) : "");
  }

  #needs({ state: key, reason, nodes }) {
    const state = this.store.states[key];
    return element("li", {}, mark(state),
      element("p", {}, this.#names(nodes), ` ${state.title}`),
      element("p", { class: "why" }, ...(nodes.length === 1 && nodes[0].reason ? [nodes[0].reason] : reason ? [reason] : prose(state.means))),
      state.todo && element("p", { class: "why todo muted" }, ...prose(todo(state, nodes))));
  }

  #flying(node) {
    const state = this.store.state(node);
    const since = node.since === null ? "" : element("span", { class: "muted", "data-since": node.since });
    return element("li", {}, mark(state),
      element("p", {}, this.#names([node]), ` ${state.title}, `, since),
      node.reason && element("p", { class: "why muted" }, node.reason));
  }

  #waits({ state, reason, nodes, number }) {
    return element("li", {}, mark(this.store.states[state] ?? { tone: "wait", mark: "·" }),
      element("p", {}, nodes.length ? this.#names(nodes) : `${count(number, "node")} not named`),
      element("p", { class: "why muted" }, reason));
  }

  #names(nodes) {
    const made = element("span", { class: "names" });
    for (const node of nodes.slice(0, nodes.length === NAMED + 1 ? NAMED + 1 : NAMED)) {
      if (made.childNodes.length) made.append(", ");
      made.append(element("button", { "data-focus": node.name, onclick: () => this.open(node.name) }, node.name));
    }
    const rest = nodes.length - made.querySelectorAll("button").length;
    if (rest) made.append(element("i", {}, ` and ${rest.toLocaleString("en")} more`));
    return made;
  }
}

/** What to do about nodes that are alike: with their names, where they are few and no domain is changed as one. */
function todo(state, nodes) {
  const names = nodes.map((node) => node.name);
  const plain = names.every((name) => /^[\w.-]+$/.test(name));
  if (!plain || names.length > ADDRESSED || nodes.some((node) => node.domain)) return state.todoForMany;
  return state.todo.replaceAll("{names}", names.join(" "));
}

function ago(time) {
  return element("span", { class: "muted" }, ", ", element("span", { "data-since": time }), " ago");
}

function byId(id) {
  return document.getElementById(id);
}
