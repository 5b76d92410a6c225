// Words and small elements that several parts of the page use.

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${pad(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${pad(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${pad(Math.floor((whole % 86400) / 3600))}h`;
}

export function clock(seconds) {
  const date = new Date(seconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString("en-GB");
  return today ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** An element with attributes and children; text is always text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== "" && child !== null && child !== undefined));
  return made;
}

export function mark(state, extra = {}) {
  return element("span", { class: `mark ${state.tone}`, "aria-hidden": "true", ...extra }, state.mark);
}

/** Text in which what stands between backticks is code. */
export function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

/** The commands in a text, that is, what stands between backticks. */
export function commands(text) {
  return text.split("`").filter((part, index) => index % 2 === 1 && part.includes(" "));
}

/** A segment of a bar, `share` from 0 to 1. */
export function segment(tone, share) {
  const made = element("i", { class: tone });
  made.style.flex = `${share} 1 0`;
  return made;
}

function pad(number) {
  return String(number).padStart(2, "0");
}
