"""Dispatches the command line. ``prestart`` comes first and without argparse: every container start pays for it.

``limit`` is for containers of claims that have a part of a GPU's memory: called once for each part, each with the sum.

Exit status: 0 done, 1 expected failure, 2 usage, 70 a bug; other than 0 the runtime refuses the container.
"""

from __future__ import annotations

import os
import sys

from runtime_hook.base.errors import EXIT_BUG, EXIT_FAILURE, EXIT_OK, EXIT_USAGE, HookError, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_CONFIG = "/etc/grapnel/hook.json"
_LIMIT_USAGE = "usage: grapnel-hook limit UUID=BYTES [--part NUMBER] [--config FILE] < STATE"
_PRESTART_USAGE = "usage: grapnel-hook prestart [--config FILE] [--root DIR] [--entitlement cdi|gpus] < STATE"


def run(arguments: Sequence[str]) -> NoReturn:
    """Run one command and end the process at once: tearing the interpreter down costs 1.8 ms and has nothing to do."""
    status = main(arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError):  # closed by whoever started us
            continue
    os._exit(status)


def main(arguments: Sequence[str]) -> int:
    """Run one command; never lets an exception out."""
    try:
        if arguments[:1] == ["prestart"]:
            return _prestart(arguments[1:])
        if arguments[:1] == ["limit"]:
            return _limit(arguments[1:])
        if arguments[:1] == ["runtime"]:
            from runtime_hook.engines.wrapper import run_wrapper

            return run_wrapper(os.path.dirname(os.path.abspath(sys.argv[0])), arguments[1:])
        from runtime_hook.commands.run import command

        return command(arguments)
    except HookError as failure:
        _complain(str(failure))
        return EXIT_FAILURE
    except Exception as bug:  # noqa: BLE001 - the last line of defence: whatever it is, the container is refused
        _complain(f"internal error: {type(bug).__name__}: {bug} (please report this)")
        return EXIT_BUG


def _prestart(arguments: Sequence[str]) -> int:
    options = {"--config": _CONFIG, "--root": "/", "--entitlement": ""}
    unknown = _take(arguments, options)
    if unknown or options["--entitlement"] not in {"", "cdi", "gpus"}:
        return _misuse(unknown or f"--entitlement {options['--entitlement']}", _PRESTART_USAGE)

    from runtime_hook.prestart import prestart

    prestart(options["--config"], options["--root"], entitlement=options["--entitlement"])
    return EXIT_OK


def _limit(arguments: Sequence[str]) -> int:
    options = {"--config": _CONFIG, "--part": ""}
    unknown = _take(arguments[1:], options)
    if unknown or not arguments:
        return _misuse(unknown, _LIMIT_USAGE)

    from runtime_hook.prestart import limit

    limit(arguments[0], options["--config"])
    return EXIT_OK


def _take(arguments: Sequence[str], options: dict[str, str]) -> str:
    """Put arguments into options; return one that is none of these, or has no value, "" where there is none."""
    for index in range(0, len(arguments), 2):
        if arguments[index] not in options or index + 1 == len(arguments):
            return arguments[index]
        options[arguments[index]] = arguments[index + 1]
    return ""


def _misuse(unknown: str, usage: str) -> int:
    """Say how a command is called; files of the node daemon do, which may be of a later release than this hook."""
    _complain(
        f"{unknown} is not known to this hook, the node daemon may be of a later release: `grapnel apply` "
        f"brings both to one ({usage})"
        if unknown
        else usage
    )
    return EXIT_USAGE


def _complain(text: str) -> None:
    sys.stderr.write(f"grapnel-hook: {one_line(text, 2000)}\n")
