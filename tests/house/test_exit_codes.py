"""Exit codes: the table of the documentation, the help texts and the code say the same."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.base import errors as node_errors
from plugin.cli.grammar import exit_codes as of_node
from plugin.cli.grammar.parser import build_parser as build_node_parser
from provision.base.errors import ExitCode
from provision.cli import VERBS, whole_parser
from provision.cli.parsers import exit_codes
from provision.cli.parsers.verbs import MODULES
from runtime_hook.base import errors as hook_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/exit-codes.md").read_text()
CONTROLLER = sorted((ROOT / "provision/cli").rglob("*.py"))
DAEMON = sorted((ROOT / "plugin/cli").glob("*.py"))


def verbs_below(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found[0].choices)


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def numbers_returned(path: Path) -> Iterator[str]:
    """Yield where a function that returns an exit code returns a number that has no name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant | ast.IfExp):
            values = (node.value.body, node.value.orelse) if isinstance(node.value, ast.IfExp) else (node.value,)
            if any(isinstance(each, ast.Constant) and type(each.value) is int and each.value > 0 for each in values):
                yield f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("path", [*CONTROLLER, *DAEMON], ids=lambda path: f"{path.parts[-3]} {path.name}")
def test_no_exit_code_but_0_is_a_bare_number(path: Path) -> None:
    assert list(numbers_returned(path)) == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_module_uses_no_code_that_its_verb_does_not_have(verb: str) -> None:
    used = set(
        re.findall(r"ExitCode\.([A-Z]+)", (ROOT / f"provision/cli/{MODULES[verb].replace('.', '/')}.py").read_text())
    )
    assert {ExitCode[each] for each in used} <= {*exit_codes.OF_VERBS[verb], *exit_codes.OF_ALL}


def test_only_the_verbs_with_a_third_outcome_use_its_code() -> None:
    users = {path.stem for path in CONTROLLER if "ExitCode.CHANGES" in path.read_text()} - {"exit_codes", "arguments"}
    assert users == {verb for verb, codes in exit_codes.OF_VERBS.items() if ExitCode.CHANGES in codes}


def test_every_verb_says_its_codes() -> None:
    assert list(exit_codes.OF_VERBS) == list(VERBS)
    for verb, parser in verbs_below(whole_parser()).items():
        assert one_line(parser.epilog) == exit_codes.epilog_of(verb)


def test_every_verb_of_the_node_daemon_says_its_codes() -> None:
    parsers = verbs_below(build_node_parser("--help"))
    assert set(parsers) == set(of_node.OF_VERBS)
    for verb, parser in parsers.items():
        assert one_line(parser.epilog) == of_node.epilog_of(verb)


def test_what_differs_by_act_names_acts_that_there_are() -> None:
    """`mig` had a code of an act `back`, which is `restore`."""
    parsers = verbs_below(build_node_parser("--help"))
    for verb in ("mig", "gpu-settings"):
        words = " ".join(of_node.OF_VERBS[verb].values())
        named = {act for acts in re.findall(r"([a-z]+(?:, [a-z]+)*):", words) for act in acts.split(", ")}
        assert named, verb
        assert named <= set(verbs_below(parsers[verb]))


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        pytest.param("## grapnel\n", exit_codes.OF_VERBS, id="grapnel"),
        pytest.param("## grapnel-node\n", of_node.OF_VERBS, id="grapnel-node"),
    ],
)
def test_the_page_has_the_table_of_a_program(heading: str, table: Mapping[str, Mapping[int, str]]) -> None:
    section = PAGE.split(heading, 1)[1].split("\n## ", 1)[0]
    lines = re.findall(r"^\|.*`.*$", section, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows == [[f"`{verb}`", *(codes.get(code, "") for code in (0, 1, 3))] for verb, codes in table.items()]


def test_the_page_has_the_codes_of_every_program() -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)\|$", PAGE, re.MULTILINE)
    columns = list(zip(*([cell.strip() for cell in row.split("|")] for _, row in rows), strict=True))
    told = [{int(code) for (code, _), cell in zip(rows, cells, strict=True) if cell} for cells in columns]
    node = {value for name, value in vars(node_errors).items() if name.startswith("EXIT_")}
    hook = {value for name, value in vars(hook_errors).items() if name.startswith("EXIT_")}
    source = (ROOT / "playbooks/plugins/module_utils/driver/program.py").read_text()
    numbers = re.search(r"^DONE, NOT_DONE, USAGE, BUG = (.*)$", source, re.MULTILINE)
    assert numbers
    driver = {int(each) for each in numbers[1].split(",")}
    assert told == [{int(each) for each in ExitCode}, node, hook, driver]
