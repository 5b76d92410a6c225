"""The architecture page names files that exist, and draws the layers that import-linter holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("provision", "plugin", "runtime_hook")


def drawn_layers(package: str) -> list[set[str]]:
    """Return the layers that the page draws for a package, top first."""
    drawing = re.search(rf"^{package} {{2,}}(.*?)(?:\n\n|\n```)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert drawing is not None
    lines = (re.split(r" {2,}", line.strip())[0] for line in drawing[1].splitlines())
    return [set(line.split(" | ")) for line in lines]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_layers_that_are_drawn_are_those_that_are_held(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = next(each for each in contracts if each["type"] == "layers" and each["containers"] == [package])

    assert drawn_layers(package) == [set(layer.split(" | ")) for layer in held["layers"]]
    assert held["exhaustive"]


def named_paths() -> list[str]:
    """Return every path of the tables; the first one of a table or a cell has the package in front."""
    return [name for name in re.findall(r"`([^`\s]+)`", PAGE.read_text()) if name.endswith(("/", ".py", ".yml"))]


@pytest.mark.parametrize("name", sorted(set(named_paths())))
def test_what_the_page_names_exists(name: str) -> None:
    places = [ROOT, *(ROOT / package for package in PACKAGES), ROOT / "playbooks"]
    exact = any((place / name).exists() for place in places)

    assert exact or ("/" not in name.rstrip("/") and any(any(place.rglob(name)) for place in places[1:]))
