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
    """Return the paths that the tables name, whole: within a cell, a path goes on from the one before it."""
    paths = []
    for cell in re.findall(r"(?<=\| )[^|\n]+(?= \|)", PAGE.read_text()):
        folder = ROOT
        for name in re.findall(r"`([^`\s]+(?:/|\.py|\.yml))`", cell):
            begins = [at for at in (folder, *folder.parents) if at.is_relative_to(ROOT) and (at / name).exists()]
            path = (begins[0] if begins else ROOT) / name
            paths.append(str(path.relative_to(ROOT)))
            folder = path if name.endswith("/") else path.parent
    return paths


def test_the_page_names_paths() -> None:
    assert len(named_paths()) > 100


@pytest.mark.parametrize("path", sorted(set(named_paths())))
def test_what_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= 150
