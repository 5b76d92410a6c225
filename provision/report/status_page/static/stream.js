// Hears what changes. The browser tries again by itself when a connection ends; a page that nobody sees lets go of it,
// because a browser has only six connections to one server for all of its tabs.

const RETRY_MS = 3000;

export function follow(take, tell) {
  let source = null;
  let ident = "";
  let timer = 0;

  function open() {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource(`/events?since=${encodeURIComponent(ident)}`);
    source.addEventListener("open", () => tell(true));
    for (const kind of ["fleet", "change"]) {
      source.addEventListener(kind, (event) => {
        ident = event.lastEventId;
        take(kind, JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      tell(false);
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      timer = setTimeout(again, RETRY_MS);
    });
  }

  /** The server refused: perhaps it wants a token. */
  async function again() {
    try {
      const answer = await fetch("/events", { method: "HEAD", cache: "no-store" });
      if (answer.status === 401) location.assign("/login");
    } catch {
      // It does not answer: the next attempt will tell.
    }
    open();
  }

  function close() {
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}
