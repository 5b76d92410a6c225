"""``python3 -m tasks VERB``: what ``make`` runs."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from lab.bundle import FOR_DEMO
from lab.machine.folders import cache_dir
from tasks.errors import TaskError
from tasks.session import Session
from tasks.suites import (
    FUZZ_S,
    MODEL_RUNS,
    UNIT,
    check_stages,
    cluster_stages,
    controller_stages,
    demo_stages,
    e2e_stage,
    fuzz_stage,
    lab_stages,
    long_stages,
    model_stage,
    molecule_stage,
    pytest_stage,
    quick_stage,
    test_stages,
    tree_stage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Named apart from KUBECONFIG, which a shell may well have: `make test` must not find somebody's cluster by accident.
OWN_CLUSTER = "GRAPNEL_E2E_KUBECONFIG"


def environment(session: Session) -> None:
    """Host packages and Python packages."""
    session.environment()


def quick(session: Session) -> None:
    """Run the unit tests that take no time: for every few lines that are written."""
    session.python_environment()
    session.show(quick_stage(session))


def check(session: Session) -> None:
    """Format, lint, types, import contracts, unit tests: what a person runs before a commit."""
    session.environment()
    session.conclude(session.run(check_stages(session)))


def lab(session: Session) -> None:
    """Everything that is built once: Go programs, simulated NVML, node trees, packages, images, payload."""
    session.environment()
    session.prepare(lab_stages(session))


def test(session: Session) -> None:
    """Set everything up and pass every test."""
    lab(session)
    session.conclude(session.run(test_stages(session)))


def fuzz(session: Session) -> None:
    """Run the fuzzers for longer: ``SECONDS`` in all."""
    session.environment()
    session.show(fuzz_stage(session, int(os.environ.get("SECONDS", FUZZ_S))))


def model(session: Session) -> None:
    """Explore what may happen to rollouts: ``RUNS`` interleavings."""
    session.python_environment()
    session.show(model_stage(session, int(os.environ.get("RUNS", MODEL_RUNS))))


def crashes(session: Session) -> None:
    """Kill exchanges at each moment, applies at each task (``CRASHES`` may name some), a Job of a swap at each step."""
    lab(session)
    os.environ.setdefault("CRASHES", "all")
    exchange = [f"tests/playbooks/driver/test_{name}.py" for name in ("kill", "module_options")]
    session.show(pytest_stage(session, "a driver's exchange killed at every moment", UNIT, *exchange))
    session.show(
        pytest_stage(session, "crashes at every task", "nodes", "tests/journey/test_killed_at_tasks.py", workers=1)
    )
    stage = [f"tests/e2e/test_{name}.py" for name in ("job_cut_off", "minds_changed", "uninstall")]
    session.show(pytest_stage(session, "Jobs ended at every step, charts in mid-rollout", "e2e", *stage, workers=1))


def long(session: Session) -> None:
    """Run what takes too long for `test`: the tests marked `long`, and the Molecule scenario of each role."""
    lab(session)
    session.conclude(session.run(long_stages(session)))


def e2e(session: Session) -> None:
    """Pass the end-to-end tests: on a cluster that is set up for them, or on the one that KUBECONFIG names."""
    kubeconfig = os.environ.get("KUBECONFIG")
    if kubeconfig:
        session.python_environment()
        os.environ[OWN_CLUSTER] = kubeconfig
        session.progress.say(f"on the cluster of {kubeconfig}: tests that look into nodes or break them are skipped")
    else:
        lab(session)
    session.show(e2e_stage(session, "end-to-end tests", "e2e"))


def molecule(session: Session) -> None:
    """Run the scenarios of the collection's roles on booted nodes."""
    lab(session)
    session.show(molecule_stage(session))


def demo(session: Session) -> None:
    """Set everything up and run the main job where a person can watch it."""
    os.environ[FOR_DEMO] = "1"
    _announce(session, "modules", "about three minutes, half of them for a kernel module of the driver")
    session.environment(tree_stage("trixie"))
    session.prepare(demo_stages(session))
    session.show(session.python("demo", "-m", "lab.demo"))


def cluster(session: Session) -> None:
    """Set everything up, start a cluster of GPU nodes and leave it running; ``FOLDER`` keeps its declaration.

    With ``CONTROLLER``, grapnel's controller sets its nodes up, from the image and the chart of the checkout; with
    ``CRIO`` there is a fourth one, whose engine is CRI-O.
    """
    _announce(session, "golang", "ten minutes, most of them for Kubernetes")
    session.environment()
    has_controller = bool(os.environ.get("CONTROLLER"))
    crio = ("--crio",) if os.environ.get("CRIO") else ()
    session.prepare([*cluster_stages(session), *(controller_stages(session) if has_controller else ())])
    session.show(session.python("cluster", "-m", "lab", "cluster", "up", *crio))
    folder = os.environ.get("FOLDER", "")
    where = ("--folder", folder) if folder else ()
    verb = "install" if has_controller else "apply"
    session.show(session.python("GPU nodes", "-m", "lab", "cluster", verb, *where))


def bench(session: Session) -> None:
    """Print the figures of every benchmark with their floors beside them."""
    lab(session)
    session.show(session.python("benchmarks", "-m", "bench"))


def _announce(session: Session, built: str, what: str) -> None:
    """Say how long a first run takes, which is one without this folder of what is built."""
    if not (cache_dir() / built).is_dir():
        session.progress.say(f"for the first time, on two cores: {what}")


VERBS: dict[str, Callable[[Session], None]] = {
    verb.__name__: verb
    for verb in (environment, quick, check, lab, test, long, fuzz, model, crashes, molecule, e2e, demo, bench, cluster)
}


def main(argv: Sequence[str]) -> int:
    """Run one verb; exit status 0 done, 1 with the reason in one line, 2 for an unknown verb."""
    if len(argv) != 1 or argv[0] not in VERBS:
        print(f"usage: python3 -m tasks {{{'|'.join(VERBS)}}}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where whoever started us ignores it, no child's status is known
    session = Session()
    try:
        VERBS[argv[0]](session)
    except TaskError as error:
        session.progress.say(f"stopped: {error}")
        return 1
    except KeyboardInterrupt:
        session.progress.say("stopped: interrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
