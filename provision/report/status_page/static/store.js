// What is known of the fleet, as the server tells it: everything once, then what changes. No DOM here.

export class Store {
  constructor() {
    this.nodes = new Map(); // by number
    this.byName = new Map();
    this.states = {};
    this.reasons = [];
    this.head = null;
    this.ahead = 0; // seconds by which the server's clock is ahead of this one
  }

  /** Take a message; return what it was about: {whole, changed: [node], entered: [node], gone: [node]}. */
  take(kind, message) {
    const whole = kind === "fleet";
    if (whole) {
      this.nodes.clear();
      this.byName.clear();
      this.states = message.states;
      this.reasons = [];
    }
    this.ahead = message.time - Date.now() / 1000;
    this.reasons.splice(message.firstReason, this.reasons.length, ...message.reasons);
    if (message.head) this.head = message.head;
    const changed = [], entered = [], moved = [];
    for (const [number, name, state, wave, domain, since, began, reason, ends] of message.nodes) {
      const before = this.nodes.get(number);
      const node = before ?? { number };
      const isMoved = !before || before.wave !== wave || before.domain !== domain;
      const isEntered = before && before.state !== state;
      Object.assign(node, { name, state, wave, domain, since, began, reason: this.reasons[reason], ends });
      this.nodes.set(number, node);
      this.byName.set(name, node);
      changed.push(node);
      if (isMoved) moved.push(node);
      if (isEntered) entered.push(node);
    }
    const gone = [];
    for (const number of message.gone) {
      const node = this.nodes.get(number);
      if (!node) continue;
      this.nodes.delete(number);
      this.byName.delete(node.name);
      gone.push(node);
    }
    return { whole: whole || moved.length > 0 || gone.length > 0, changed, entered, gone };
  }

  now() {
    return Date.now() / 1000 + this.ahead;
  }

  /** The states that nodes are in, in the order of the server, each with its number of nodes. */
  counts() {
    const counts = new Map(Object.keys(this.states).map((key) => [key, 0]));
    for (const node of this.nodes.values()) counts.set(node.state, (counts.get(node.state) ?? 0) + 1);
    return [...counts].filter(([, count]) => count > 0);
  }

  state(node) {
    return this.states[node.state];
  }
}

/** Nodes that say the same, the most first; a node's own name in its reason makes no difference. */
export function byReason(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const reason = node.reason.includes(node.name) ? withoutName(node) : node.reason;
    const key = `${node.state}\n${reason}`;
    if (!groups.has(key)) groups.set(key, { state: node.state, reason, nodes: [] });
    groups.get(key).nodes.push(node);
  }
  return [...groups.values()].sort((one, other) => other.nodes.length - one.nodes.length);
}

function withoutName(node) {
  return node.reason.split(/([^\w.-]+)/).map((word) => (word === node.name ? "NODE" : word)).join("");
}

/** Whether a node has all the words, and one of the states; an empty set of states means every state. */
export function matcher(store, words, states) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  return (node) => {
    if (states.size && !states.has(node.state)) return false;
    if (!wanted.length) return true;
    const text = `${node.name} ${node.domain} ${node.wave} ${node.reason} ${store.state(node).title}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  };
}

const collator = new Intl.Collator("en", { numeric: true });

export function byName(one, other) {
  return collator.compare(one.name, other.name);
}

export function byTitle(one, other) {
  return collator.compare(one, other);
}
