// One node that is looked at closely: what its state means, what to do, how long each phase took, and what happened.

import { clock, commands, duration, element, mark, prose } from "/format.js";

const TONES = { done: "ok", now: "work", failed: "bad", ahead: "wait" };
const MARKS = { done: "✓", now: "●", failed: "✕", ahead: "·" };

export class Details {
  constructor(store, closed) {
    this.store = store;
    this.closed = closed;
    this.name = "";
    this.root = document.getElementById("drawer");
    this.title = document.getElementById("drawer-title");
    this.body = document.getElementById("drawer-body");
    document.getElementById("drawer-close").addEventListener("click", () => this.close());
  }

  get isOpen() {
    return !this.root.hidden;
  }

  async open(name) {
    this.name = name;
    this.title.textContent = name;
    this.root.hidden = false;
    await this.refresh();
    this.title.focus();
  }

  close() {
    if (!this.isOpen) return;
    this.root.hidden = true;
    this.body.replaceChildren();
    const name = this.name;
    this.name = "";
    this.closed(name);
  }

  /** Ask for the node again, after it has changed. */
  async refresh() {
    const name = this.name;
    let answer;
    try {
      answer = await fetch(`/node/${encodeURIComponent(name)}`, { cache: "no-store" });
    } catch {
      return; // the page says elsewhere that the server does not answer
    }
    if (name !== this.name) return;
    if (!answer.ok) {
      this.body.replaceChildren(element("p", { class: "muted" }, "This node is not there any more."));
      return;
    }
    this.draw(await answer.json());
  }

  draw(node) {
    const state = this.store.states[node.state];
    this.body.replaceChildren(...[
      element("p", { class: "badge" }, mark(state), state.title),
      element("p", {}, ...prose(`${sentence(state.means)}.`)),
      this.#todo(node, state),
      this.#facts(node, state),
      this.#timeline(node),
      this.#machine(node),
      this.#log(node),
    ].filter(Boolean));
  }

  #todo(node, state) {
    if (!node.todo) return null;
    const box = element("div", { class: "do" }, element("h3", {}, state.needsSomebody ? "What to do" : "If you want"), element("p", {}, ...prose(sentence(node.todo))));
    for (const command of new Set(commands(node.todo))) box.append(copyable(command));
    if (node.giveUp) box.append(element("details", {}, element("summary", {}, "Give up on it"), element("p", {}, ...prose(node.giveUp))));
    return box;
  }

  #facts(node, state) {
    const versions = [node.origin, node.target].filter(Boolean).join(" → ");
    const entries = [
      ["reason", node.reason],
      ["next", element("span", {}, ...prose(state.follows))],
      ["upgrade", versions],
      ["wave", node.wave],
      ["domain", node.domain],
      ["began", node.began === null ? "" : clock(node.began)],
      ["since", node.since === null ? "" : element("span", {}, `${clock(node.since)}, for `, element("span", { "data-since": node.since }, duration(this.store.now() - node.since)))],
      ["cordon", node.wasCordoned ? "somebody else's: it stays" : ""],
    ];
    return element("dl", { class: "facts" }, ...entries.filter(([, text]) => text).flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  }

  #machine(node) {
    const now = this.store.now();
    return element("section", {}, element("h3", {}, "Machine"), element("dl", { class: "facts machine" }, ...node.machine.flatMap(([label, text, said]) => [
      element("dt", {}, label),
      element("dd", {}, ...prose(text), said === null ? "" : element("span", { class: "muted" }, ", ", element("span", { "data-since": said }, duration(now - said)), " ago"))])));
  }

  #timeline(node) {
    if (!node.timeline.length) return null;
    const longest = Math.max(1, ...node.timeline.map((step) => step.took ?? 0));
    return element("section", {}, element("h3", {}, "Phases"), element("ol", { class: "steps" }, ...node.timeline.map((step) => {
      const bar = element("i", { class: TONES[step.status] });
      bar.style.width = `${(100 * (step.took ?? 0)) / longest}%`;
      const took = step.status === "now" && node.since !== null
        ? element("span", { class: "took", "data-since": node.since }, duration(step.took ?? 0))
        : element("span", { class: "took" }, step.took === null ? { failed: "failed", ahead: "", done: "not measured" }[step.status] ?? "" : duration(step.took));
      return element("li", { class: step.status }, element("span", { class: `mark ${TONES[step.status]}`, "aria-hidden": "true" }, MARKS[step.status]),
        element("span", {}, step.phase), element("span", { class: "track" }, bar), took);
    })));
  }

  #log(node) {
    const since = `Seen since ${clock(node.logBegan)}. Before that: the output of the apply.`;
    return element("section", {}, element("h3", {}, "Log"), element("p", { class: "muted seen" }, since), element("ol", { class: "log" }, ...node.log.map(([time, key, reason]) => {
      const state = this.store.states[key];
      return element("li", {}, element("time", { datetime: new Date(time * 1000).toISOString() }, clock(time)), mark(state),
        element("p", {}, state.title, reason && element("span", { class: "muted" }, `: ${reason}`)));
    })));
  }
}

function copyable(command) {
  const button = element("button", { onclick: async () => {
    await navigator.clipboard?.writeText(command);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  } }, "Copy");
  return element("div", { class: "command" }, element("code", {}, command), navigator.clipboard ? button : "");
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
