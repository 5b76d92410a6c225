"""The command line of the node daemon: arguments in, exit codes out.

What the exit codes mean is in `plugin.cli.grammar.exit_codes`. Everything heavy is imported by the verb that needs it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

from plugin.base.errors import EXIT_BUG, EXIT_FAILURE, EXIT_INTERRUPTED, NodeDaemonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_PLAIN = 3  # words of `run --config FILE`
_SHARED = {  # verbs whose module has another name
    "config": "show",
    "gpushare-extender": "gpushare",
    "inspect": "gpushare",
    "mig": "mig.change",
    "resume": "release",
    "offered": "release",
}


class Verb(Protocol):
    """A verb's module."""

    def run(self, arguments: argparse.Namespace | SimpleNamespace) -> int:
        """Run the verb and return the exit code."""


def _parse(words: Sequence[str]) -> argparse.Namespace | SimpleNamespace:
    """Return the arguments. Those that a unit starts the daemon with need no parser, a tenth of the whole start."""
    is_plain = words == ["run"] or (len(words) == _PLAIN and words[0] == "run" and words[1] == "--config")
    if is_plain and not words[-1].startswith("-"):
        config = Path(words[2]) if len(words) == _PLAIN else None
        return SimpleNamespace(verb="run", debug=False, in_pod=False, config=config)
    from plugin.cli.grammar.parser import build_parser

    return build_parser(next(iter(words), "")).parse_args(words)


def import_verb(verb: str) -> Verb:
    """Return the module of a verb: most need neither gRPC nor NVML."""
    name = _SHARED.get(verb, verb.replace("-", "_"))
    return cast("Verb", import_module(f"plugin.cli.{name}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = _parse(sys.argv[1:] if argv is None else list(argv))
    try:
        return import_verb(arguments.verb).run(arguments)
    except NodeDaemonError as error:
        print(f"grapnel-node: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        failure: BaseException = error
        code = EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug gets its exit code
        print(f"grapnel-node: bug: {error!r}; run again with --debug and report it", file=sys.stderr)
        failure = error
        code = EXIT_BUG
    if arguments.debug:
        raise failure
    return code
