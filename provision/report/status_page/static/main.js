// Ties the parts of the page together: what arrives, what is asked for, and the keys.

import { Details } from "/details.js";
import { count, element, mark } from "/format.js";
import { Grid } from "/grid.js";
import { List } from "/list.js";
import { Overview } from "/overview.js";
import { Store, byName, matcher } from "/store.js";
import { follow } from "/stream.js";

const THEMES = [["auto", "◐", "Colours: as the system has them"], ["light", "○", "Colours: light"], ["dark", "●", "Colours: dark"]];
const byId = (id) => document.getElementById(id);
const store = new Store();
const picked = new Set(); // states that are shown; none: all
const grid = new Grid(byId("grid"), store, openNode);
const list = new List(byId("list"), store, openNode);
const overview = new Overview(store, openNode, revealWave);
const details = new Details(store, (name) => {
  grid.select(null);
  if (byId("list").hidden) grid.focus(store.byName.get(name));
  else list.focus();
});
let isList = false;
let pending = 0;

function take(kind, message) {
  const began = performance.now();
  const { whole, changed, entered } = store.take(kind, message);
  overview.draw();
  chips();
  if (whole) grid.draw(byId("group").value);
  else grid.update(changed);
  if (whole || isFiltered() || isList) filter();
  if (changed.some((node) => node.name === details.name)) details.refresh();
  announce(entered);
  performance.measure(kind, { start: began });
}

function filter() {
  const matches = matcher(store, byId("search").value, picked);
  const shown = isList ? list.draw(matches) : grid.filter(matches);
  byId("shown").textContent = isFiltered() ? `${shown.toLocaleString("en")} of ${count(store.nodes.size, "node")} shown` : "";
}

function isFiltered() {
  return picked.size > 0 || byId("search").value.trim() !== "";
}

function chips() {
  const counts = store.counts();
  for (const key of picked) if (!counts.some(([state]) => state === key)) picked.delete(key);
  const focused = document.activeElement?.dataset?.key;
  byId("chips").replaceChildren(...counts.map(([key, number]) => {
    const state = store.states[key];
    return element("button", { "aria-pressed": String(picked.has(key)), "data-key": key, title: state.means.replaceAll("`", ""), onclick: () => pick(key) },
      mark(state), state.title, element("b", {}, number.toLocaleString("en")));
  }));
  if (focused) byId("chips").querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function pick(key) {
  if (!picked.delete(key)) picked.add(key);
  chips();
  filter();
}

function openNode(name) {
  grid.select(store.byName.get(name));
  details.open(name);
}

function revealWave(title) {
  if (isList) view(false);
  byId("group").value = "wave";
  grid.draw("wave");
  filter();
  grid.reveal(title);
}

function view(asList) {
  isList = asList;
  byId("grid").hidden = asList;
  byId("list").hidden = !asList;
  byId("grouping").hidden = asList;
  byId("as-grid").setAttribute("aria-pressed", String(!asList));
  byId("as-list").setAttribute("aria-pressed", String(asList));
  filter();
}

/** Say aloud what needs somebody now, for those who hear the page. */
function announce(entered) {
  const news = entered.filter((node) => store.state(node).needsSomebody);
  if (news.length) byId("said").textContent = news.slice(0, 3).map((node) => `${node.name}: ${store.state(node).title}`).join(". ");
}

function theme(name) {
  const [key, sign, words] = THEMES.find(([each]) => each === name) ?? THEMES[0];
  if (key === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = key;
  byId("theme-mark").textContent = sign;
  byId("theme-name").textContent = words;
  byId("theme").title = `${words} (t)`;
  try {
    localStorage.setItem("theme", key);
  } catch {
    // a browser that keeps nothing
  }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  theme(THEMES[(THEMES.findIndex(([key]) => key === now) + 1) % THEMES.length][0]);
}

/** Open the next node that needs somebody, or the one before. */
function toNeedy(step) {
  const needy = [...store.nodes.values()].filter((node) => store.state(node).needsSomebody).sort(byName);
  if (!needy.length) return;
  const index = needy.findIndex((node) => node.name === details.name);
  openNode(needy[(index + step + (index < 0 && step < 0 ? 1 : 0) + needy.length) % needy.length].name);
}

function escape() {
  if (details.isOpen) details.close();
  else if (isFiltered()) {
    byId("search").value = "";
    picked.clear();
    chips();
    filter();
  }
}

const KEYS = {
  "/": () => byId("search").focus(),
  "?": () => byId("keys").showModal(),
  n: () => toNeedy(1),
  p: () => toNeedy(-1),
  v: () => view(!isList),
  t: nextTheme,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "Escape") return escape();
  if (event.target.matches("input, select, textarea") || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

byId("search").addEventListener("input", () => {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(filter);
});
byId("search").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "Enter") return;
  event.preventDefault();
  if (isList) list.focus();
  else grid.focus();
});
byId("group").addEventListener("change", () => {
  grid.draw(byId("group").value);
  filter();
});
byId("as-grid").addEventListener("click", () => view(false));
byId("as-list").addEventListener("click", () => view(true));
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());

const tip = byId("tip");
function showTip(event) {
  const node = grid.nodeOf(event.target);
  tip.hidden = !node;
  if (!node) return;
  tip.replaceChildren(element("b", {}, `${node.name}: ${store.state(node).title}`), node.reason);
  const box = event.target.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const top = box.bottom + 8 + tip.offsetHeight > innerHeight ? box.top - tip.offsetHeight - 8 : box.bottom + 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${top}px`;
}
byId("grid").addEventListener("pointerover", showTip);
byId("grid").addEventListener("focusin", showTip);
byId("grid").addEventListener("pointerleave", () => (tip.hidden = true));
byId("grid").addEventListener("focusout", () => (tip.hidden = true));
addEventListener("scroll", () => (tip.hidden = true), { passive: true });

try {
  theme(localStorage.getItem("theme"));
} catch {
  theme("auto");
}
setInterval(() => overview.tick(), 1000);
follow(take, (connected) => {
  if (connected) overview.connected?.remove();
  else if (!overview.connected?.isConnected) {
    overview.connected = element("p", { class: "notice warn" }, "No connection: this is what was seen last; trying again");
    byId("notices").before(overview.connected);
  }
});
