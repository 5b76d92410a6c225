"""Fuzzes one parser: ``python -m tests.fuzz.one PARSER [libFuzzer's options and corpus folders]``."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["runtime_hook"], enable_loader_override=False):
    from tests.fuzz.parsers import PARSERS


def main(arguments: list[str]) -> None:
    """Run until time is up or something is found; libFuzzer ends the process."""
    parser = PARSERS[arguments[1]]
    atheris.Setup([arguments[0], *arguments[2:]], parser)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
