"""Runs every fuzzer for its share of a time, some at once: ``python -m tests.fuzz [--seconds N] [PARSER ...]``.

What is learned stays in the XDG cache, so the next run goes on from there. Exit status 1 when anything was found: the
input is in ``dist/fuzz/`` then, and belongs into ``tests/fuzz/corpus/`` with the repair.

Importing the controller with its branches counted takes five seconds, longer than a fuzzer has in `make test`. So it is
done once and each fuzzer is a fork; those of the hook come first, while nothing of the controller slows them down.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import atheris

from lab.machine.folders import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def counted(*packages: str) -> Iterator[None]:
    """Have the branches counted of what is imported here of these packages, without a line for each module."""
    with (
        contextlib.redirect_stderr(io.StringIO()),
        atheris.instrument_imports(include=[*packages], enable_loader_override=False),
    ):
        yield


with counted("runtime_hook"):
    from tests.fuzz.parsers import PARSERS

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
FOUND = REPOSITORY / "dist/fuzz"
MEMORY_MIB = 1024
LONGEST_BYTES = 1 << 12
NAMES = [*PARSERS, *sorted({path.name for path in CORPUS.iterdir()} - PARSERS.keys())]
ONE_INPUT_S = 10  # more than this for 4 KiB is a finding


@dataclass(frozen=True)
class Fuzzer:
    """One fuzzer at work, in a process of its own."""

    parser: str
    process: int
    log: Path

    def result(self, share: int) -> tuple[bool, str]:
        """Wait for its end; return whether it has found nothing, and a line of it."""
        is_clean = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]) == 0
        output = self.log.read_text(encoding="utf-8", errors="replace")
        covered = (re.findall(r"cov: (\d+)", output) or ["0"])[-1]
        runs = (re.findall(r"number_of_executed_units: (\d+)", output) or ["0"])[-1]
        verdict = "nothing found" if is_clean else f"FOUND: see {FOUND / self.parser}\n{output[-6000:]}"
        return is_clean, f"{self.parser}: {share} s, {runs} inputs, {covered} edges: {verdict}"


def fuzz(name: str, seconds: int) -> Fuzzer:
    """Start one fuzzer, whose parser is imported in this process."""
    learned, found = cache_dir() / "fuzz" / name, FOUND / name
    for folder in (learned, found):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_BYTES}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-timeout={ONE_INPUT_S}",
        f"-artifact_prefix={found}/",
        f"-dict={Path(__file__).parent / 'words.dict'}",
        "-print_final_stats=1",
    ]
    parser, log = find_parser(name), FOUND / f"{name}.log"
    process = os.fork()
    if process == 0:
        with log.open("wb") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        atheris.Setup([sys.argv[0], *options, str(learned), str(CORPUS / name)], parser)
        atheris.Fuzz()  # the process ends in it; as a program does, or libFuzzer would not write down what it has found
    return Fuzzer(name, process, log)


def find_parser(name: str) -> Callable[[bytes], object]:
    """Return a parser of the hook, or of the controller, which is imported only then."""
    if name in PARSERS:
        return PARSERS[name]
    with counted("provision", "tomlkit", "ansible_collections"):
        from tests.fuzz.controller import CONTROLLER  # noqa: PLC0415 - instrumented while it is imported
    return CONTROLLER[name]


def main() -> int:
    """Run the fuzzers that were named, or all, and print a line for each."""
    options = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    options.add_argument("--seconds", type=int, default=120, help="time for all of them together")
    options.add_argument("--jobs", type=int, default=2, help="how many run at once")
    options.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(NAMES)}")
    chosen = options.parse_args()
    names = sorted(chosen.parsers or NAMES, key=NAMES.index)
    share = max(1, chosen.seconds * chosen.jobs // len(names))
    failed = False
    for start in range(0, len(names), chosen.jobs):  # all have the same time
        for fuzzer in [fuzz(name, share) for name in names[start : start + chosen.jobs]]:
            is_clean, line = fuzzer.result(share)
            print(line, flush=True)  # noqa: T201 - its output
            failed |= not is_clean
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
