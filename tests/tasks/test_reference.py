"""The pages of docs/reference are what the sources say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from provision.cli import VERBS
from provision.controller.publication import news
from provision.declaration.spec.template import render_template
from tasks.generated.reference import FOLDER, render


@pytest.mark.parametrize("name", ["declaration.md", "events.md", "grapnel.md", "grapnel-node.md", "node-labels.md"])
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


def test_every_event_of_a_stack_is_in_the_table_that_people_read() -> None:
    source = Path(news.__file__).read_text()
    told = set(re.findall(r'StackEvent\(\s*reason="(\w+)"', source))
    table = render()["events.md"].partition("## Of a GpuStack")[2]

    assert len(told) > 5
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))) == told


def test_every_label_that_is_not_of_a_profile_is_explained() -> None:
    samples = (FOLDER.parent / "contracts" / "node-labels" / "good").glob("*.json")
    names = {name for path in samples for name in json.loads(path.read_text()) if "/mig-" not in name}
    page = render()["node-labels.md"]

    assert len(names) > 30
    assert [
        name for name in sorted(names) if not re.search(rf"^\| `{re.escape(name)}` \|.*[\w`] \|$", page, re.MULTILINE)
    ] == []
