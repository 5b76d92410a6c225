"""Prints failures and findings: plain words, with colour only where a person is watching.

Whatever is printed without ``rich`` is printed here, so that nothing of it reaches the terminal but visible characters.
Who sits there is named here as well, for others who read it: on a lease, in a pause, in a saved plan.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from provision.base.printable import printable_lines
from provision.declaration.spec.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.base.errors import GrapnelError
    from provision.declaration.spec.text.findings import Finding

_INDENT: Final = "    "  # no line but the first begins as one of grapnel's own does


def wants_colour(stream: TextIO) -> bool:
    """Return whether a person who wants colour is watching (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colour: bool) -> str:
    """Return the text in an ECMA-48 style ("1;31" is bold red), or as it is."""
    return f"\033[{style}m{text}\033[0m" if colour else text


def say(text: str, stream: TextIO | None = None) -> None:
    """Print words that may come from other programs, on standard output unless told; further lines are indented."""
    print(printable_lines(text, indent=_INDENT), file=stream or sys.stdout, flush=True)


def print_error(error: GrapnelError) -> None:
    """Print an expected failure: its findings, its message and its hint."""
    colour = wants_colour(sys.stderr)
    if isinstance(error, DeclarationError):
        print_findings(error.findings)
    message, hint = (printable_lines(text, indent=_INDENT) for text in (error.message, error.hint))
    print(f"grapnel: {paint('error:', '1;31', colour=colour)} {message}", file=sys.stderr)
    if hint:
        print(f"  {paint('hint:', '1;36', colour=colour)} {hint}", file=sys.stderr)


def print_traceback(error: BaseException) -> None:
    """Print where an error came from; its last lines quote whatever it is about."""
    import traceback  # noqa: PLC0415 - start-up time: needed for --debug only

    say("".join(traceback.format_exception(error)).rstrip("\n"), sys.stderr)


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings with the source line and a caret each, and an empty line after the last one."""
    from provision.declaration.spec.text.excerpt import render_findings  # noqa: PLC0415 - start-up time

    text = render_findings(findings, colour=wants_colour(sys.stderr))
    if text:
        print(f"{text}\n", file=sys.stderr)


def outlasting(stream: TextIO) -> TextIO:
    """Return the stream for a command that must not end because what it prints is not read any more.

    When the reader has gone, as `| head` does, that is said once on standard error, and the rest is thrown away.
    """
    return cast("TextIO", _Outlasting(stream))


class _Outlasting:
    """Passes on everything; what is not written here is asked of the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop it."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._go_on_unread()
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what was to be flushed."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._go_on_unread()

    def _go_on_unread(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        with contextlib.suppress(OSError):  # that may not be read either
            say("grapnel: nobody reads the output any more: going on; `grapnel status` shows how it stands", sys.stderr)


def person() -> str:
    """Return who runs the command and where, such as ``ada@laptop``."""
    return f"{os.environ.get('USER') or _account()}@{os.uname().nodename}"


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container that runs as any user
        return str(os.getuid())
