"""Writes deploy/crd/gpustacks.yaml from the model; a test holds the file to it. `python -P -m tasks.generated.crd`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import yaml

from provision.controller.stacks.crd import definition

FILE: Final = Path(__file__).parents[2] / "deploy" / "crd" / "gpustacks.yaml"
_HEAD: Final = (
    "# Made from the model of the declaration by `python -P -m tasks.generated.crd`.\n"
    "# yamllint disable rule:line-length\n---\n"
)


class _Indented(yaml.SafeDumper):
    """Indents lists below their keys, as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002 - PyYAML's
        super().increase_indent(flow, indentless=False)


def render() -> str:
    """Return the text of the file."""
    return _HEAD + yaml.dump(definition(), Dumper=_Indented, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
    sys.exit(0)
