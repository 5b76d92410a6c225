"""The pages of docs/reference are what the sources say."""

from __future__ import annotations

import pytest

from provision.cli import VERBS
from provision.declaration.spec.template import render_template
from tasks.generated.reference import FOLDER, render


@pytest.mark.parametrize("name", ["declaration.md", "grapnel.md", "grapnel-node.md"])
def test_the_file_is_made_from_the_sources(name: str) -> None:
    assert (FOLDER / name).read_text() == render()[name], "run `python -P -m tasks.generated.reference`"


def test_no_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(render())


def test_every_verb_and_every_key_of_the_first_file_is_there() -> None:
    pages = render()
    keys = {
        line.strip().partition(":")[0] for line in render_template().splitlines() if ":" in line and "#" not in line
    }

    assert [verb for verb in VERBS if f"\n## grapnel {verb}\n" not in pages["grapnel.md"]] == []
    told = pages["declaration.md"]
    above_spec = {"apiVersion", "kind", "metadata", "name", "spec"}
    assert [key for key in keys - above_spec if f"{key}`" not in told and f"\n## {key}\n" not in told] == []
