"""One line per event on stderr, `key=value`, for journald and for `grep`.

Not here: what is worth a line. That is decided where it happens.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_VALUE = 1024  # one hostile or huge value must not flood the journal


def _quote(value: object) -> str:
    text = str(value)
    if len(text) > _MAX_VALUE:
        text = text[:_MAX_VALUE] + "…"
    plain = text.isprintable() and text != "" and not any(character in text for character in ' "=\\')
    return text if plain else json.dumps(text, ensure_ascii=False)


def format_line(level: str, message: str, fields: Iterable[tuple[str, object]]) -> str:
    """Return `level=… msg=… key=value …` on one line, whatever the values contain."""
    pairs = [("level", level), ("msg", message), *fields]
    return " ".join(f"{key}={_quote(value)}" for key, value in pairs)


class _LineFormatter(logging.Formatter):
    """Brings the records of libraries (asyncio) into the same form."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        fields = list(getattr(record, "fields", {}).items())
        if record.name != "grapnel":
            fields.append(("logger", record.name))
        if record.exc_info and record.exc_info[1] is not None:
            fields.append(("error", repr(record.exc_info[1])))
        line = format_line(record.levelname.lower(), record.getMessage(), fields)
        if self._debug and record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def configure(stream: TextIO, *, debug: bool) -> None:
    """Send every log record of the process to `stream`; tracebacks only with `debug`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LineFormatter(debug=debug))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.INFO, force=True)
    for library in ("asyncio", "hpack"):
        logging.getLogger(library).setLevel(logging.WARNING)


class Logger:
    """Messages in plain words with fields; a state that lasts (`standing`) is said once."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("grapnel")
        self._standing: dict[str, str] = {}

    def debug(self, message: str, **fields: object) -> None:
        """Say what only helps when looking for a fault."""
        self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """Say what an operator wants to see once."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """Say what an administrator should look at."""
        self._logger.warning(message, extra={"fields": fields})

    def standing(self, topic: str, message: str = "", **fields: object) -> None:
        """Warn when the state of `topic` becomes `message`, and not again while it stays so; "" ends it."""
        if self._standing.get(topic, "") == message:
            return
        if message:
            self._standing[topic] = message
            self.warning(message, **fields)
        else:
            del self._standing[topic]
            self.info("resolved", topic=topic, **fields)
