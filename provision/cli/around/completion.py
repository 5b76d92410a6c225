"""`grapnel completion`: prints the script with which a shell completes grapnel's verbs, options and files.

The script knows everything by itself: completing starts no Python. shtab writes it from the parsers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

import shtab

from provision.base.errors import ExitCode
from provision.cli import whole_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = "DIR"  # the metavar of every option that names one
_PATH: Final = "PATH"  # that of inventories, which need not be paths


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(script_of(whole_parser(), args.shell), end="")
    return ExitCode.DONE


def script_of(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script of a parser for one of `SHELLS`."""
    for action in arguments_of(parser):
        if action.type is Path or action.metavar == _PATH:
            files = shtab.DIRECTORY if action.metavar == _FOLDER else shtab.FILE
            action.complete = files  # type: ignore[attr-defined] # where shtab looks for it
    return str(shtab.complete(parser, shell=shell))


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of all verbs below it."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to read a parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - see above
            for below in action.choices.values():
                yield from arguments_of(below)
        else:
            yield action
