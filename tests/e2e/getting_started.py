"""What docs/getting-started.md has people type, and the files that it has them save."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

PAGE: Final = Path(__file__).parents[2] / "docs" / "getting-started.md"
_BLOCK: Final = re.compile(r"^```(console|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"# ([a-z-]+\.yaml)\n")


@dataclass(frozen=True)
class Guide:
    """The commands of the page in their order, by section, and its files by name."""

    first: tuple[str, ...]
    later: tuple[str, ...]
    files: dict[str, dict[str, Any]]


def read_guide() -> Guide:
    """Read the page."""
    before, _, after = PAGE.read_text().partition("\n## Later\n")
    files = {}
    for kind, text in _BLOCK.findall(before):
        if kind == "yaml":
            name = _FILE.match(text)
            assert name is not None, f"{PAGE}: a file without a name: {text[:60]}"
            files[name[1]] = yaml.safe_load(text)
    return Guide(_commands(before), _commands(after), files)


def _commands(text: str) -> tuple[str, ...]:
    lines = (line for kind, block in _BLOCK.findall(text) if kind == "console" for line in block.splitlines())
    return tuple(line.removeprefix("$ ") for line in lines)
