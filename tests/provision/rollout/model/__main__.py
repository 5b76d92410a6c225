"""Explores interleavings, some at once: ``python -m tests.provision.rollout.model [--runs N] [--jobs J] [--seed S]``.

So many of each of two models are: of people at terminals, and of a controller beside them. Each is drawn from a seed of
its own: an apply, or a controller at work, and then events in a random order, most of which are kills, faults, or what
people do; at the end everything is healed, and every node has to have what is declared. Of terminals, a share is
explored by hypothesis, which draws its own. Exit status 1 when one violated something: its shortest form is printed,
and belongs into a test with the repair. ``--model beside --seed S --runs 1`` plays the one with that seed again.
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
TERMINALS, BESIDE = "terminals", "beside"


def explore(model: str, runs: int, seed: int) -> tuple[int, int, str]:
    """Play interleavings of a model with seeds from one on, until something is violated.

    Return how many were played, how many events were injected, and what was violated.
    """
    from tests.provision.rollout.model import events, shrink  # noqa: PLC0415 - the parent does not need it
    from tests.provision.rollout.model.beside import events as beside  # noqa: PLC0415 - see above

    table, violated = (beside, beside.violated) if model == BESIDE else (events, shrink.violated)
    gc.set_threshold(50_000)
    injected = 0
    for each in range(seed, seed + runs):
        drawn = table.drawn(each)
        injected += sum(name in table.INJECTED for name, *_ in drawn[table.FIRST :])
        if violated(drawn):
            fewest = shrink.shrink(drawn, violated)
            return each - seed + 1, injected, f"{model}, seed {each}: {violated(fewest)}\n{shrink.told(fewest)}"
    return runs, injected, ""


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


def start(model: str, way: str, runs: int, seed: int) -> tuple[int, int, str]:
    """Explore in a process of its own; return what `explore` does, but nothing of what hypothesis has injected."""
    argv = [sys.executable, "-P", "-m", "tests.provision.rollout.model", "--model", model, way]
    argv += ["--runs", str(runs), "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    count, _newline, violation = done.stdout.partition("\n")
    played, _space, injected = count.partition(" ")
    if not (played.isdecimal() and injected.isdecimal()):  # it did not come to its end
        return 0, 0, f"{done.stdout}{done.stderr}"
    return int(played), int(injected), violation


def main() -> int:
    """Explore, and tell what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", choices=(TERMINALS, BESIDE), help="explore this one alone")
    parser.add_argument("--by-seed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--by-hypothesis", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.by_hypothesis:
        explore_by_hypothesis(args.runs, args.seed)
        sys.stdout.write(f"{args.runs} 0\n")
        return 0
    if args.by_seed:
        played, injected, violation = explore(args.model, args.runs, args.seed)
        sys.stdout.write(f"{played} {injected}\n{violation}")
        return 1 if violation else 0
    models = (args.model,) if args.model else (TERMINALS, BESIDE)
    return max(explore_all(model, args.runs, args.seed, args.jobs) for model in models)


def explore_all(model: str, runs: int, seed: int, jobs: int) -> int:
    """Explore a model in several processes; return the exit status."""
    began, drawn = time.monotonic(), runs // BY_HYPOTHESIS if model == TERMINALS else 0
    work = [(model, "--by-hypothesis", drawn, seed)] if drawn else []
    work += [(model, "--by-seed", min(BATCH, runs - drawn - at), seed + at) for at in range(0, runs - drawn, BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(start, *zip(*work, strict=True)))
    for _played, _injected, violation in found:
        sys.stdout.write(violation)
    violations = sum(bool(violation) for _played, _injected, violation in found)
    played, injected = sum(each[0] for each in found), sum(each[1] for each in found)
    told = f"{model}: {played} interleavings ({drawn} drawn by hypothesis) in {time.monotonic() - began:.0f} s"
    sys.stdout.write(f"{told}, {injected} events beside the engines' own: {violations or 'no'} violations\n")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
