"""Explores interleavings, some at once: ``python -m tests.provision.rollout.model [--runs N] [--jobs J] [--seed S]``.

Each is drawn from a seed of its own: an apply, and then sixteen events in a random order, most of which are kills,
faults, or what people do; at the end everything is healed, and every node has to have what is declared. A share is
explored by hypothesis, which draws its own. Exit status 1 when one violated something: its shortest form is printed,
and belongs into a test with the repair. ``--seed S --runs 1`` plays the one with that seed again.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
RUNS = 100_000
BATCH = 2_000  # so that a violation is told soon
BY_HYPOTHESIS = 50  # one interleaving of so many


def explore(runs: int, seed: int) -> tuple[int, str]:
    """Play interleavings with seeds from one on; return how many events were injected, and what was violated."""
    from tests.provision.rollout.model.events import INJECTED, drawn  # noqa: PLC0415 - the parent does not need it
    from tests.provision.rollout.model.shrink import shrink, told, violated  # noqa: PLC0415 - see above

    gc.set_threshold(50_000)
    injected = 0
    for each in range(seed, seed + runs):
        events = drawn(each)
        injected += sum(name in INJECTED for name, *_ in events[2:])
        if violated(events):
            fewest = shrink(events)
            return injected, f"seed {each}: {violated(fewest)}\n{told(fewest)}"
    return injected, ""


def explore_by_hypothesis(runs: int, seed: int) -> None:
    """Do the same with hypothesis; raises what was violated."""
    from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - the parent does not need it
    from hypothesis import seed as seeded  # noqa: PLC0415 - see above
    from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415 - see above

    from tests.provision.rollout.model.events import LENGTH  # noqa: PLC0415 - see above
    from tests.provision.rollout.model.machine import RolloutMachine  # noqa: PLC0415 - see above

    run_state_machine_as_test(
        seeded(seed)(RolloutMachine),
        settings=settings(
            max_examples=runs,
            stateful_step_count=LENGTH,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


def start(way: str, runs: int, seed: int) -> tuple[int, str]:
    """Explore in a process of its own; return how many events it injected, and what it says was violated."""
    argv = [sys.executable, "-P", "-m", "tests.provision.rollout.model", way, "--runs", str(runs), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return 0, f"{done.stdout}{done.stderr}"
    return int(done.stdout or 0), ""


def main() -> int:
    """Explore, and tell what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by-seed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--by-hypothesis", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.by_hypothesis:
        explore_by_hypothesis(args.runs, args.seed)
        return 0
    if args.by_seed:
        injected, violation = explore(args.runs, args.seed)
        sys.stdout.write(violation or f"{injected}\n")
        return 1 if violation else 0
    return explore_all(args.runs, args.seed, args.jobs)


def explore_all(runs: int, seed: int, jobs: int) -> int:
    """Explore in several processes; return the exit status."""
    began, drawn = time.monotonic(), runs // BY_HYPOTHESIS
    work = [("--by-hypothesis", drawn, seed)] if drawn else []
    work += [("--by-seed", min(BATCH, runs - drawn - at), seed + at) for at in range(0, runs - drawn, BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(start, *zip(*work, strict=True)))
    for _injected, violation in found:
        sys.stdout.write(violation)
    violations = sum(bool(violation) for _injected, violation in found)
    injected = sum(injected for injected, _violation in found)
    played = f"{runs} interleavings ({drawn} of them by hypothesis) in {time.monotonic() - began:.0f} s"
    sys.stdout.write(f"{played}, {injected} events beside the engines' own: {violations or 'no'} violations\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
