"""`grapnel-node drift`: compares the node with what `grapnel apply` brought about on it. Changes nothing.

With `--output` the result is left in a file as well, which is how the timer calls it; the daemon reads that file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_FAILURE, EXIT_NOT_AS_WANTED, EXIT_OK, DriftError, os_reason
from plugin.drift.compare import compare
from plugin.drift.host import Host
from plugin.drift.model import MAX_BYTES, parse_declared
from plugin.drift.result import Result, Verdict, render_result
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace

    from plugin.drift.model import Declared, Difference

DECLARED = Path("/etc/grapnel/declared.json")
_OUTPUT_MODE = 0o644  # it names versions and paths, and nothing of what is in a file
_EXIT_CODES = {
    Verdict.AS_DECLARED: EXIT_OK,
    Verdict.DRIFTED: EXIT_NOT_AS_WANTED,
    Verdict.NOT_COMPARED: EXIT_FAILURE,
}


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    return show_drift(arguments.output, as_json=arguments.json)


def show_drift(output: Path | None, *, as_json: bool, path: Path = DECLARED, host: Host | None = None) -> int:
    """Compare, print, and return the exit code: with `output` that of writing it, whatever was found."""
    result = compare_now(path, host or Host())
    if output is not None:
        _write(output, result)
    text = render_result(result) if as_json else "\n".join(_lines(result)) + "\n"
    print(text, end="")
    return EXIT_OK if output is not None else _EXIT_CODES[result.verdict]


def compare_now(path: Path, host: Host) -> Result:
    """Return the result. That something changes the node is asked afterwards too: it may have begun meanwhile."""
    at = int(host.now())
    try:
        reason = host.change_at_work() or host.returned_since(path)
        if reason:
            return Result(at, reason=reason)
        declared = _read(path)
        differences = compare(declared, host.look(declared))
    except DriftError as error:
        words = f"{error.message} ({error.hint})" if error.hint else error.message
        return Result(at, reason=words)
    reason = host.change_at_work() if differences else ""
    return Result(at, reason=reason) if reason else Result(at, differences)


def _read(path: Path) -> Declared:
    hint = "grapnel apply writes it"
    try:
        return parse_declared(read_bounded(path, MAX_BYTES + 1))
    except OSError as error:
        raise DriftError(f"{path} cannot be read: {os_reason(error)}", hint) from error
    except ValueError as error:
        raise DriftError(f"{path}: {error}", hint) from error


def _write(output: Path, result: Result) -> None:
    try:
        replace_file(output, render_result(result), _OUTPUT_MODE)
    except OSError as error:
        raise DriftError(f"{output} cannot be written: {os_reason(error)}") from error


def _lines(result: Result) -> list[str]:
    if result.verdict is Verdict.NOT_COMPARED:
        return [f"not compared: {result.reason}"]
    if result.verdict is Verdict.AS_DECLARED:
        return ["as declared"]
    mends = dict.fromkeys(each.mend for each in result.differences)
    return [*map(_line, result.differences), *(f"mend: {each}" for each in mends)]


def _line(difference: Difference) -> str:
    line = f"{difference.kind.value}: {difference.name} is {difference.found}, declared {difference.declared}"
    if difference.since is None:
        return line
    return f"{line}; since {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(difference.since))}"
