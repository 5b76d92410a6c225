"""Runs every fuzzer for its share of a time, some at once: ``python -m tests.fuzz [--seconds N] [PARSER ...]``.

What is learned stays in the XDG cache, so the next run goes on from there. Exit status 1 when anything was found: the
input is in ``dist/fuzz/`` then, and belongs into ``tests/fuzz/corpus/`` with the repair.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.machine.folders import cache_dir
from tests.fuzz.controller import CONTROLLER
from tests.fuzz.parsers import PARSERS

REPOSITORY = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
FOUND = REPOSITORY / "dist/fuzz"
MEMORY_MIB = 1024
LONGEST_BYTES = 1 << 12
NAMES = [*PARSERS, *CONTROLLER]
ONE_INPUT_S = 10  # more than this for 4 KiB is a finding
START_S = 60


@dataclass(frozen=True)
class Result:
    """What came of one fuzzer."""

    parser: str
    runs: int
    covered: int
    output: str
    is_clean: bool


def fuzz(parser: str, seconds: int) -> Result:
    """Run one fuzzer in a process of its own."""
    learned, found = cache_dir() / "fuzz" / parser, FOUND / parser
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
    argv = [sys.executable, "-P", "-m", "tests.fuzz.one", parser, *options, str(learned), str(CORPUS / parser)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=environment, check=False)
    covered = re.findall(r"cov: (\d+)", done.stderr)
    runs = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    output = done.stdout[-2000:] + done.stderr[-4000:]
    return Result(parser, int((runs or [0])[-1]), int((covered or [0])[-1]), output, done.returncode == 0)


def main() -> int:
    """Run the fuzzers that were named, or all, and print a line for each."""
    options = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    options.add_argument("--seconds", type=int, default=120, help="time for all of them together")
    options.add_argument("--jobs", type=int, default=2, help="how many run at once")
    options.add_argument("parsers", nargs="*", metavar="PARSER", help=f"of {', '.join(NAMES)}")
    chosen = options.parse_args()
    names = chosen.parsers or NAMES
    share = max(1, chosen.seconds * chosen.jobs // len(names))
    with ThreadPoolExecutor(chosen.jobs) as pool:
        results = list(pool.map(lambda name: fuzz(name, share), names))
    for result in results:
        verdict = "nothing found" if result.is_clean else f"FOUND: see {FOUND / result.parser}\n{result.output}"
        print(f"{result.parser}: {share} s, {result.runs} inputs, {result.covered} edges: {verdict}")  # noqa: T201 - its output
    return 0 if all(result.is_clean for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
