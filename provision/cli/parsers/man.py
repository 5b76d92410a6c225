"""``python -m provision.cli.parsers.man FILE``: writes the manual page grapnel(1), for groff and mandoc.

Equal parsers give equal bytes: the page has no date.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision.base.errors import ExitCode
from provision.cli import whole_parser
from provision.cli.parsers.exit_codes import KINDS, OF_ALL, OF_VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ENVIRONMENT: Final[Mapping[str, str]] = {
    "GRAPNEL_PAYLOAD": "Folder of the archives for nodes, unless --payload names one.",
    "GRAPNEL_SIGNERS": "File of those who may sign bundles, unless --signers names one; set, bundles must be signed.",
    "GRAPNEL_SIGNING_KEY": "Key that `bundle create` signs with, unless --sign names one.",
    "KUBECONFIG": "The cluster's access, unless --kubeconfig names one.",
    "NO_COLOR": "Set and not empty: no colour.",
    "XDG_CACHE_HOME": "Where built modules, bundles and packages are kept, in grapnel/ (default: ~/.cache).",
    "XDG_STATE_HOME": "Where the state of nodes without a cluster is kept, in grapnel/ (default: ~/.local/state).",
}
FILES: Final[Mapping[str, str]] = {
    "grapnel.yaml": "The declaration, unless --file names one.",
    "inventory, inventory.yaml, hosts.yaml": "The Ansible inventory, unless --inventory names one.",
}


def main(arguments: Sequence[str]) -> int:
    """Write the page into a file."""
    parser = argparse.ArgumentParser(
        prog="python -m provision.cli.parsers.man", description="write the page grapnel(1)"
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.parse_args(arguments).file.write_text(page(whole_parser()), encoding="utf-8")
    return ExitCode.DONE


def page(parser: argparse.ArgumentParser) -> str:
    """Return the page of the whole parser."""
    lines = [
        f'.TH GRAPNEL 1 "" "grapnel {provision.__version__}" "User Commands"',
        *(".SH NAME", r"grapnel \- turns Linux machines into GPU nodes from one declaration"),
        *(".SH SYNOPSIS", r"\fBgrapnel\fR [\fB\-\-debug\fR] \fIVERB\fR ..."),
        *(".SH DESCRIPTION", _text(parser.description or "")),
        *(".SH OPTIONS", *_arguments(parser)),
        *(".SH VERBS", *_verbs(parser)),
        *(".SH EXIT STATUS", *_exit_status()),
        *(".SH ENVIRONMENT", *_table(ENVIRONMENT)),
        *(".SH FILES", *_table(FILES)),
        *(".SH SEE ALSO", ".BR ansible (1),", ".BR ansible\\-inventory (1)"),
    ]
    return "\n".join(lines) + "\n"


def _verbs(parser: argparse.ArgumentParser) -> Iterator[str]:
    for name, verb in below(parser).items():
        yield f".SS grapnel {_text(name)}"
        yield _sentence(verb.description or "")
        yield from _usage(verb)
        yield from _arguments(verb)
        for action, parser_of_action in below(verb).items():
            yield from (".PP", f"\\fBgrapnel {_text(name)} {_text(action)}\\fR")
            yield from _usage(parser_of_action)
            yield from _arguments(parser_of_action)
        yield from _codes_of(name)


def _codes_of(verb: str) -> Iterator[str]:
    codes = OF_VERBS.get(verb, {})
    told = "; ".join(f"{int(code)}: {meaning}" for code, meaning in sorted(codes.items()))
    yield from (".PP", f"Exit status: {_text(told)}.")


def _exit_status() -> Iterator[str]:
    codes = {**KINDS, **OF_ALL}
    yield from _table({str(int(code)): f"{codes[code][:1].upper()}{codes[code][1:]}." for code in sorted(codes)})


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    words = parser.format_usage().removeprefix("usage: ").split()
    yield from (".PP", ".nh", _text(" ".join(words)), ".hy")


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for invocation, meaning in arguments(parser):
        yield from _entry(invocation, _sentence(meaning))


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Yield the arguments and options, words and help as `--help` has them."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        meaning = formatter._expand_help(action) if action.help else ""
        yield formatter._format_action_invocation(action), meaning


def below(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's verbs, or of a verb's actions, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    for name, meaning in rows.items():
        yield from _entry(name, _text(meaning))


def _entry(term: str, meaning: str) -> Iterator[str]:
    yield from (".TP", f"\\fB{_text(term)}\\fR", meaning or r"\&")


def _sentence(text: str) -> str:
    """Return the words of a help text as a sentence."""
    return _text(f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}") if text else ""


def _text(text: str) -> str:
    """Return words that roff prints as they are; what is quoted in backticks is bold."""
    escaped = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    escaped = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
