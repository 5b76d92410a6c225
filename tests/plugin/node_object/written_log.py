"""A log whose lines a test reads."""

from __future__ import annotations

import io
import logging

from plugin.base.log import Logger, format_line


class WrittenLog(Logger):
    """Keeps every line as it would be printed."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        logger = logging.getLogger(f"grapnel.test-{id(self)}")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.handlers.clear()
        handler = logging.StreamHandler(self._stream)
        handler.format = lambda record: format_line(  # type: ignore[method-assign]
            record.levelname.lower(), record.getMessage(), getattr(record, "fields", {}).items()
        )
        logger.addHandler(handler)
        super().__init__(logger)

    def text(self) -> str:
        return self._stream.getvalue()

    def lines(self, word: str) -> list[str]:
        return [line for line in self.text().splitlines() if word in line]
