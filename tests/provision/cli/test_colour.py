"""Colour in a terminal: where people look, and nowhere if NO_COLOR says so (https://no-color.org)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.provision.cli.shells import in_terminal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CONTRACTS = ROOT / "docs/contracts"
COMMAND = (sys.executable, "-P", "-c", "import sys; from provision.cli import main; sys.exit(main())")
SAYING = [
    pytest.param(("planz",), "unknown verb", id="an error"),
    pytest.param(("check", "-f", "bad.yaml"), "error", id="findings"),
    pytest.param(
        ("simulate", "--fleet", str(CONTRACTS / "simulation-fleet/good/everything-goes-wrong.yaml")),
        "worst",
        id="what rich shows",
    ),
]


def told_in_terminal(words: tuple[str, ...], folder: Path, **environment: str) -> str:
    (folder / "bad.yaml").write_text("kind: Nothing\n")
    own = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    return in_terminal((*COMMAND, *words), {**own, **environment})


def colours(text: str) -> list[str]:
    """Return the colours that are switched on, as ECMA-48 numbers: 30 to 48 and the bright ones."""
    numbers = (number for sequence in re.findall(r"\x1b\[([0-9;]*)m", text) for number in sequence.split(";"))
    return [each for each in numbers if re.fullmatch(r"[349][0-8]|10[0-7]", each)]


@pytest.mark.parametrize(("words", "said"), SAYING)
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": ""}], ids=["usually", "NO_COLOR is empty"])
def test_a_terminal_gets_colour(words: tuple[str, ...], said: str, environment: dict[str, str], tmp_path: Path) -> None:
    told = told_in_terminal(words, tmp_path, **environment)

    assert said in told
    assert colours(told)


@pytest.mark.parametrize(("words", "said"), [*SAYING, pytest.param(("plan", "--help"), "usage", id="help")])
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"NO_COLOR": "0"}, {"TERM": "dumb"}], ids=str)
def test_who_wants_no_colour_gets_none(
    words: tuple[str, ...], said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    told = told_in_terminal(words, tmp_path, **environment)

    assert said in told
    assert colours(told) == []
