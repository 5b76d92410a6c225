"""Explores interleavings, some at once: ``python -m tests.provision.rollout.model [--runs N] [--jobs J] [--seed S]``.

Each run is a sequence of what may happen to rollouts of a small fleet. Exit status 1 when one violated something: its
shortest form is printed, and belongs into a test with the repair.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
RUNS = 100_000
BATCH = 2_500  # so that a violation is told soon, and that hypothesis has no more to remember


def explore(runs: int, seed: int) -> None:
    """Explore in this process; raises what was violated."""
    from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - the parent does not need it
    from hypothesis import seed as seeded  # noqa: PLC0415 - see above
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 - see above

    from tests.provision.rollout.model.machine import STEPS_OF_A_RUN, RolloutMachine  # noqa: PLC0415 - see above

    run_state_machine_as_test(
        seeded(seed)(RolloutMachine),
        settings=settings(
            max_examples=runs,
            stateful_step_count=STEPS_OF_A_RUN,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


def start(runs: int, seed: int) -> str:
    """Explore in a process of its own; return what it says when something was violated."""
    argv = [sys.executable, "-P", "-m", "tests.provision.rollout.model", "--one", str(runs), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    return f"seed {seed}:\n{done.stdout}{done.stderr}" if done.returncode else ""


def main() -> int:
    """Explore, and tell what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        explore(args.one, args.seed)
        return 0
    began = time.monotonic()
    sizes = [min(BATCH, args.runs - at) for at in range(0, args.runs, BATCH)]
    with ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(start, sizes, range(args.seed, args.seed + len(sizes))))
    violations = [each for each in found if each]
    for each in violations:
        sys.stdout.write(each)
    told = f"{len(violations) or 'no'} violations"
    sys.stdout.write(f"{sum(sizes)} interleavings in {time.monotonic() - began:.0f} s: {told}\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
