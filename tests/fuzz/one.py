"""Fuzzes one parser: ``python -m tests.fuzz.one PARSER [libFuzzer's options and corpus folders]``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import atheris

if TYPE_CHECKING:
    from collections.abc import Callable

with atheris.instrument_imports(include=["runtime_hook"], enable_loader_override=False):
    from tests.fuzz.parsers import PARSERS


def find_parser(name: str) -> Callable[[bytes], object]:
    """Return a parser of the hook, or of the controller, which is imported only then."""
    if name in PARSERS:
        return PARSERS[name]
    with atheris.instrument_imports(
        include=["provision", "tomlkit", "ansible_collections"], enable_loader_override=False
    ):
        from tests.fuzz.controller import CONTROLLER  # noqa: PLC0415 - instrumented while it is imported
    return CONTROLLER[name]


def main(arguments: list[str]) -> None:
    """Run until time is up or something is found; libFuzzer ends the process."""
    parser = find_parser(arguments[1])
    atheris.Setup([arguments[0], *arguments[2:]], parser)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
