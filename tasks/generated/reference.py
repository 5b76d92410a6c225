"""Writes docs/reference/ from the sources; a test holds the files to them. `python -P -m tasks.generated.reference`.

Keys of the declaration from its model, verbs and their options from the parsers, labels from their schema; Events from
what tells of phases, and from the tables of two pages that tests hold to the sources.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plugin.cli.grammar.parser import build_parser
from provision.cli import whole_parser
from provision.cli.declare.explain import every_key
from provision.cli.parsers.man import arguments, below
from provision.cluster.kubernetes.notices import Notice, event
from provision.rollout.model import Phase

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
MADE: Final = "<!-- made from the sources by `python -P -m tasks.generated.reference` -->\n"
_DECLARATION: Final = """
Every key below `spec`, in the order of `grapnel init --every-key`; keys of entries of a list or a mapping stand below
the key that has them. `grapnel explain KEY` says the same in a terminal, with the pattern of a text;
`grapnel check --explain NODE` says which value a node has, and who set it. How they work together:
[the contract](../contracts/gpustack/README.md), [settings of a node](../node-settings.md).
"""
_CONTROLLER: Final = """
The verbs of `grapnel`, in the words of `grapnel VERB --help`. What they have in common:
[the command line](../command-line.md). What they end with: [exit codes](../exit-codes.md).
"""
_NODE: Final = """
The verbs of `grapnel-node`, as root on a node, in the words of `grapnel-node VERB --help`. What the daemon does:
[the device plugin](../device-plugin.md). What they end with: [exit codes](../exit-codes.md).
"""
_LABELS: Final = """
What `grapnel-node` labels its Node, under the names of NVIDIA's GPU feature discovery. A label whose value is not known
is absent, except `gpu.machine` and `gpu.mode`. With the strategy `mixed` there is also `nvidia.com/mig-PROFILE.NAME` of
each profile, for what stands here as `gpu.NAME`. How they get there and what they are for:
[labels](../device-plugin/labels.md); labels of an upgrade: [the contract](../contracts/node-state/README.md).

| label | value | for example | what it says |
|---|---|---|---|
"""
_PHASES: Final = """
## Of a node, in an upgrade

As `kubectl describe node` shows them; a reason that a node has is added to the message, and makes a warning of it.
`GrapnelJobCutOff`: somebody has [ended a Job](../controller.md#when-a-job-is-ended) of the controller. What they need,
and how they are switched off: [watching an upgrade](../upgrade/watching.md#on-the-node).

| Event | type | message |
|---|---|---|
"""
_WIDTH: Final = 90
_HEAD: Final = "| key | what it is | default | what it decides |\n|---|---|---|---|\n"


def render() -> Mapping[str, str]:
    """Return the text of each file by its name."""
    return {
        "declaration.md": "".join(["# Keys of the declaration\n\n", MADE, _DECLARATION, *_declaration()]),
        "events.md": "".join(["# Events\n\n", MADE, *_events()]),
        "grapnel.md": "".join(["# grapnel\n\n", MADE, _CONTROLLER, *_verbs(whole_parser(), "##")]),
        "grapnel-node.md": "".join(["# grapnel-node\n\n", MADE, _NODE, *_verbs(build_parser("devices"), "##")]),
        "node-labels.md": "".join(["# Labels of a node\n\n", MADE, _LABELS, *_labels()]),
    }


def _declaration() -> Iterator[str]:
    for key, kind, sentence, limits in every_key():
        section, _, name = key.partition(".")
        if not name:
            yield f"\n## {section}\n\n{sentence}\n\n{_HEAD}"
            continue
        told = dict(limit.partition(": ")[::2] for limit in limits)
        default = f"`{told['default']}`" if "default" in told else "" if kind == "a mapping" else "required"
        words = [_limit(name, value) for name, value in told.items() if name not in {"default", "written as"}]
        what = kind.replace("one of the words below", "a word")
        yield _row([f"`{name}`", what, default, f"{sentence} {_sentence(words)}".strip()])


def _limit(name: str, value: str) -> str:
    values = value.split(", ") if name == "allowed" else [value]
    return f"{name}: {', '.join(f'`{each}`' for each in values)}"


def _verbs(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    """Yield a program's verbs, or a verb's actions, each with its usage and its options."""
    for name, verb in below(parser).items():
        yield f"\n{heading} {verb.prog}\n\n{_sentence([_words(parser, name)])}\n\n```\n{_usage(verb)}\n```\n"
        listed = [(words, meaning) for words, meaning in arguments(verb) if words != "-h, --help"]
        if listed:
            yield "\n| | |\n|---|---|\n"
            yield from (_row([f"`{words}`", meaning]) for words, meaning in listed)
        yield from _verbs(verb, f"{heading}#")


def _events() -> Iterator[str]:
    yield _PHASES
    now = datetime.fromtimestamp(0, UTC)
    for phase in Phase:
        told = event(Notice(node="n", uid="u", phase=phase, reason="", time=now), count=1, first=now)
        yield _row([f"`{told['reason']}`", told["type"], told["message"]])
    yield "\n## Of a node, from its daemon\n\nWhere they are sent: [in the cluster](../device-plugin/cluster.md).\n\n"
    yield _table_of("contracts/node-state/README.md", "| reason | type | when |")
    yield "\n## Of a GpuStack\n\nFrom [the controller](../controller.md#what-it-tells).\n\n"
    yield _table_of("controller.md", "| Event | when |")


def _table_of(page: str, head: str) -> str:
    """Return a table of a page of docs/, with its links as they are from here."""
    path = FOLDER.parent / page
    _, found, rest = path.read_text(encoding="utf-8").partition(head)
    table = found + rest.partition("\n\n")[0] + "\n"
    return re.sub(
        r"\]\(([^)#:]*)(#[^)]*)?\)",
        lambda link: f"]({os.path.relpath(path.parent / link[1] if link[1] else path, FOLDER)}{link[2] or ''})",
        table,
    )


def _labels() -> Iterator[str]:
    contract = FOLDER.parent / "contracts" / "node-labels"
    samples = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(contract.glob("good/*.json"))]
    for name, about in json.loads((contract / "schema.json").read_text(encoding="utf-8"))["properties"].items():
        sample = next((each[name] for each in samples if each.get(name)), "")
        what = {"number": "a number", "word": "`true`, `false`"}.get(about.get("$ref", "").rpartition("/")[2], "a text")
        if "enum" in about:
            what = ", ".join(f"`{value}`" for value in about["enum"] if value)
        yield _row([f"`{name}`", what, f"`{sample}`" if sample else "", about["description"]])


def _usage(verb: argparse.ArgumentParser) -> str:
    """Return its usage in lines, of which none ends within brackets."""
    words = " ".join(verb.format_usage().removeprefix("usage: ").split())
    whole = re.sub(r"\[[^]]*\]", lambda each: each[0].replace(" ", "\0"), words)
    lines = textwrap.wrap(whole, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace("\0", " ")


def _words(parser: argparse.ArgumentParser, name: str) -> str:
    """Return what a verb does, as the list of verbs has it."""
    actions = [each for each in parser._actions if each.choices and hasattr(each, "_choices_actions")]
    return next(each.help or "" for action in actions for each in action._choices_actions if each.dest == name)


def _sentence(words: Iterable[str]) -> str:
    text = "; ".join(words)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for _name, _text in render().items():
        (FOLDER / _name).write_text(_text, encoding="utf-8")
    sys.exit(0)
