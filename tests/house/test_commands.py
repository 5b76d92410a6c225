"""Documents are part of the product: the commands in them are commands, with options that there are."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.cli.grammar.parser import build_parser as build_node_parser
from provision.cli import main

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SKIPPED = {".venv", "dist", "node_modules", ".git", ".ansible"}
GENERATED = ROOT / "docs" / "reference"  # of the parsers themselves
FENCED = re.compile(r"^ *```.*?$\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
CONTINUED = re.compile(r"\s*\\\n\s*")
PROMPT = re.compile(r"^[$#] ")
COMMENT = re.compile(r"\s{2,}.*| # .*")  # beside a command
APART = re.compile(r"&&|\|\||[;|&]|\$?\(|\)")
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ |sudo )*(grapnel|grapnel-node|make) ([a-z-]+(?: .*)?)")
REDIRECTED = re.compile(r"\d?>>?\s*\S+")
# What is said of a verb, rather than a whole command: `grapnel bundle create`.
SHORT = ("the following arguments are required", "expected one argument")


def documents() -> list[Path]:
    """Return every page that somebody has written."""
    found = (path for path in ROOT.rglob("*.md") if not SKIPPED.intersection(path.relative_to(ROOT).parts))
    return sorted(path for path in found if GENERATED not in path.parents)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the programs that a page has run, and their words: of a session what stands behind its prompts."""
    for block in FENCED.findall(text):
        lines = CONTINUED.sub(" ", block).splitlines()
        session = [line for line in lines if PROMPT.match(line)]
        for line in session or lines:
            yield from _of_line(PROMPT.sub("", line))
    for code in INLINE.findall(FENCED.sub("", text)):
        if COMMAND.match(line := " ".join(code.split())):  # and no message that names one
            yield from _of_line(line)


def _of_line(line: str) -> Iterator[tuple[str, str]]:
    for piece in APART.split(COMMENT.sub("", line.strip())):
        if found := COMMAND.fullmatch(piece.strip()):
            yield found[1], REDIRECTED.sub("", found[2]).translate(str.maketrans("", "", "[]…"))


@cache
def targets() -> frozenset[str]:
    """Return what `make` has."""
    return frozenset(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


class Understood:
    """A verb whose words were understood, which is all."""

    def run(self, args: argparse.Namespace) -> int:
        return 0


@cache
def fault(program: str, said: str) -> str:
    """Return what a program says against such words, empty for nothing."""
    words = shlex.split(said)
    if program == "make":
        unknown = {word for word in words if "=" not in word and not word.startswith("-")} - targets()
        return f"no target {unknown}" if unknown else ""
    told, code = io.StringIO(), 0
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            if program == "grapnel":
                code = main(words, load=lambda _: Understood())
            else:
                build_node_parser(words[0]).parse_args(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
    is_wrong = code and ": error: " in told.getvalue() and not any(words in told.getvalue() for words in SHORT)
    return told.getvalue() if is_wrong else ""


@pytest.mark.slow
@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_what_the_programs_understand(document: Path) -> None:
    assert [f"{' '.join(each)}: {said}" for each in commands(document.read_text()) if (said := fault(*each))] == []


def test_commands_are_found() -> None:
    found = {each for document in documents() for each in commands(document.read_text())}

    assert {program for program, _ in found} == {"grapnel", "grapnel-node", "make"}
    assert len(found) > 200
    assert {"apply", "plan", "status", "rollback", "explain"} <= {said.split()[0] for _, said in found}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`grapnel status --node n1`", "unrecognized arguments: --node"),
        ("```\n$ grapnel bring\n```", "unknown verb 'bring'"),
        ("```\nsudo grapnel-node mig cut   # all\n```", "invalid choice: 'cut'"),
        ("`make cluster && make nothing`", "no target {'nothing'}"),
        ("```\n$ cd x && grapnel plan \\\n    --dif\n```", "unrecognized arguments: --dif"),
    ],
)
def test_what_there_is_not_is_told(text: str, found: str) -> None:
    assert [found in said for each in commands(text) if (said := fault(*each))] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "`grapnel bundle create`",
        "`paused by ada; grapnel resume ends it`",
        "`grapnel apply --yes n1 n2`",
        "```\n$ grapnel --version\ngrapnel version of no verb\n```",
        "```\nmake cluster CONTROLLER=1\ngrapnel status --serve & grapnel plan -o plan.json > out; kill $!\n```",
    ],
)
def test_what_is_right_or_no_command_is_not(text: str) -> None:
    assert [said for each in commands(text) if (said := fault(*each))] == []
