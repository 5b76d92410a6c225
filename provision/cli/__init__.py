"""The `grapnel` command: one module per verb, one way to report failure.

A verb has a line in `verbs.py`, its options in `arguments.py`, and a module with `run(args) -> int`. The module is
imported only when its verb is to run, so that all help and `check` start quickly. What a verb does belongs in the other
parts; here are words, options and exit codes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import sys
from typing import TYPE_CHECKING, Protocol, cast

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.ending import ending_on_signals
from provision.cli.parsers.arguments import ARGUMENTS
from provision.cli.parsers.exit_codes import epilog_of
from provision.cli.parsers.verbs import GROUPS, MODULES, VERBS
from provision.cli.terminal import print_error, print_traceback, say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["VERBS", "main"]


class Verb(Protocol):
    """A verb's module."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the verb and return the exit code."""


def import_verb(name: str) -> Verb:
    """Return the module of a verb."""
    verb = cast("Verb", importlib.import_module(f"provision.cli.{MODULES[name]}"))
    gc.freeze()  # what is imported stays to the end: to look for garbage in it takes a sixth of a short verb's own time
    return verb


def main(argv: Sequence[str] | None = None, *, load: Callable[[str], Verb] = import_verb) -> int:
    """Run `grapnel` and return its exit code: 0 done, 1 expected failure, 2 usage, 70 a bug."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in arguments
    if is_debug:
        from provision.cli.debug import show_bugs  # noqa: PLC0415 - start-up time

        show_bugs()
    try:
        with ending_on_signals():
            code = _dispatch(arguments, load)
            sys.stdout.flush()
    except GrapnelError as error:
        if is_debug:
            print_traceback(error)
        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        return _reader_went_away()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # of a terminal that is gone
            print("grapnel: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where a bug becomes an exit code
        return _report_bug(error, is_debug=is_debug)
    return code


def _dispatch(arguments: list[str], load: Callable[[str], Verb]) -> int:
    verb = verb_of(arguments)
    parser = build_parser(VERBS if verb is None else (verb,), whole=verb is not None)
    try:
        args, more = parser.parse_known_args(arguments)
        _add_nodes(parser, args, more)
    except SystemExit as stop:  # argparse has printed help, the version or what is wrong
        return int(stop.code or ExitCode.DONE)
    if args.overview is not None:  # no verb was said, or of a verb with actions no action
        args.overview.print_help(sys.stderr)
        return ExitCode.USAGE
    return int(load(args.verb).run(args))


def _add_nodes(parser: argparse.ArgumentParser, args: argparse.Namespace, words: Sequence[str]) -> None:
    """Add nodes that are named behind an option to those before it, where argparse leaves them over."""
    are_names = all(word.strip(" ,:") and not word.startswith("-") for word in words)
    if words and not (are_names and "limit" in args):
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    if words:
        args.limit = ",".join([*([args.limit] if args.limit else []), *words])


def verb_of(arguments: Sequence[str]) -> str | None:
    """Return the verb that is asked for, whose module is imported; None when only the overview can be meant."""
    words = [word for word in arguments if not word.startswith("-")]
    if words and words[0] not in VERBS:
        raise _unknown_verb(words[0])
    return words[0] if words else None


def _unknown_verb(word: str) -> UsageError:
    from difflib import get_close_matches  # noqa: PLC0415 - start-up time: needed for a mistake only

    near = get_close_matches(word, VERBS, n=1)
    hint = f"did you mean `grapnel {near[0]}`?" if near else f"one of: {', '.join(VERBS)}"
    return UsageError(f"unknown verb '{word}'", hint=hint)


class _Overview(argparse.HelpFormatter):
    """Tells the verbs in their groups, none of them with a line for its name alone."""

    def format_help(self) -> str:
        self._action_max_length += self._indent_increment  # of the verbs, which argparse forgets
        return super().format_help()

    def _format_action(self, action: argparse.Action) -> str:
        verbs = {each.dest: each for each in self._iter_indented_subactions(action)}
        if not verbs:
            return super()._format_action(action)
        self._indent()
        groups = [
            f"{' ' * self._indent_increment}{title}:\n{''.join(map(super(_Overview, self)._format_action, members))}"
            for title, names in GROUPS.items()
            if (members := [verbs[name] for name in names if name in verbs])
        ]
        self._dedent()
        return "\n".join(groups)


class _ShowVersion(argparse.Action):
    """Does what `grapnel version` does, as people expect it of an option."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from provision.cli.around.version import version_lines  # noqa: PLC0415 - start-up time

        for line in version_lines():
            say(line)
        parser.exit()


def build_parser(verbs: Collection[str], *, whole: bool) -> argparse.ArgumentParser:
    """Return the parser that knows these verbs; where it is not to be ``whole``, no more of each than its summary."""
    parser = argparse.ArgumentParser(
        prog="grapnel",
        description="Turns Linux machines into GPU nodes from one declaration.",
        epilog="`grapnel VERB --help` shows the options of a verb.",
        formatter_class=_Overview,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, help="show the versions of grapnel and of what nodes would get"
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.set_defaults(overview=parser)
    subparsers = parser.add_subparsers(title="verbs", metavar="VERB")
    for name in verbs:
        subparser = subparsers.add_parser(name, help=VERBS[name], description=VERBS[name], allow_abbrev=False)
        if whole:
            subparser.set_defaults(overview=None, verb=name)
            ARGUMENTS[name](subparser)
            subparser.epilog = epilog_of(name)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser that knows every verb: for what is written about all of them."""
    return build_parser(VERBS, whole=True)


def _reader_went_away() -> int:
    """Leave quietly when `| head` has seen enough; the interpreter must not flush into the closed pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.FAILED


def _report_bug(error: Exception, *, is_debug: bool) -> int:
    if is_debug:
        print_traceback(error)
    from provision.base.bug import what_it_says  # noqa: PLC0415 - start-up time: needed for a bug only

    hint = "run it again with --debug and report what it prints"
    print_error(GrapnelError(f"a bug: {what_it_says(error)}", hint="" if is_debug else hint))
    return ExitCode.BUG
