"""Every seed and everything that a fuzzer has found goes through its parser: without atheris, in the plain tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.controller import CONTROLLER
from tests.fuzz.parsers import PARSERS

ALL = PARSERS | CONTROLLER
CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


def test_every_parser_has_seeds_and_every_seed_a_parser() -> None:
    assert {path.parent.name for path in INPUTS} == set(ALL)


@pytest.mark.slow
@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name} {path.name}")
def test_what_holds_of_a_parser_holds_of_its_corpus(path: Path) -> None:
    ALL[path.parent.name](path.read_bytes())
