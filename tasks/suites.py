"""What is checked, tested and built: every suite as stages, with what may run beside what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key
from tasks.environment import REQUIREMENTS, python_tag
from tasks.stage import CORES, plain_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.session import Session
    from tasks.stage import Stage

TYPED = ("provision", "runtime_hook", "plugin", "lab", "bench", "tasks")
WAITING = 3  # workers whose tests wait for a third of their time, for other processes and machines
GIVES_UP = "--maxfail=8"  # where a broken node or cluster lets each test wait two minutes before it fails, too
OLDEST_OF_NODES = "3.10"  # as provision.planning.supply.payload.build has it, which needs libraries
UNIT = "not functional and not nodes and not e2e"
UNIT_FOLDERS = ("provision", "plugin")  # below tests/, of which each takes as long as all others together
FUZZ_IN_TESTS_S = 50
FUZZ_S = 1800
MODEL_RUNS = 100_000
HALF_A_MINUTE = "half a minute"  # on two cores, as all such times
GO_TAKES = {"kubernetes": "seven minutes", "containerd": "a minute", "crio": "two minutes"}
DEMO_IMAGES = ("pause", "gpu-shell", "greedy")  # as lab.demo loads them, which needs libraries


def check_stages(session: Session) -> list[Stage]:
    """Return format, lint, types, import contracts, Ansible's checks, unit tests; what takes longest comes first."""
    collection = ("-p", "ansible_collections.grapnel.node.plugins")  # typed under the name that Ansible gives it
    longest, *others = unit_stages(session)
    return [
        longest,
        types_stage(session, "types", *TYPED),
        types_stage(session, "types of the daemon", "--python-version", OLDEST_OF_NODES, "plugin"),
        session.python("ansible-test sanity", "-m", "tasks.ansible_sanity"),
        session.python("ansible-lint", "-m", "tasks.ansible_lint"),
        types_stage(session, "types of the collection", *collection, env={"MYPYPATH": "playbooks/collections"}),
        session.python(
            "promtool from Debian's package", "-m", "lab.tools.promtool"
        ),  # reads the alert rules in a unit test
        session.tool("import contracts", "lint-imports"),
        session.tool("yaml", "yamllint", "--strict", "."),
        session.tool("spelling", "codespell"),
        session.tool("lint", "ruff", "check", "."),
        session.tool("format", "ruff", "format", "--check", "."),
        *others,
    ]


def unit_stages(session: Session) -> list[Stage]:
    """Return the unit tests in parts, a process each: workers would all read every file, and talk of every test."""
    marks, others = f"{UNIT} and not long", [f"--ignore=tests/{folder}" for folder in UNIT_FOLDERS]
    return [
        *(pytest_stage(session, f"unit tests of {each}", marks, f"tests/{each}", workers=1) for each in UNIT_FOLDERS),
        pytest_stage(session, "other unit tests", marks, *others, workers=1),
    ]


def types_stage(session: Session, title: str, *argv: str, env: Mapping[str, str] | None = None) -> Stage:
    """Return types checked by mypy, which keeps what it found of this folder's files for the next clone in it.

    It reads a file again only where size or time have changed: clones elsewhere, and other libraries, have their own.
    """
    found = cache_dir() / f"mypy-{content_key(title, str(Path.cwd()), REQUIREMENTS.read_bytes(), python_tag())}"
    return session.tool(title, "mypy", "--cache-dir", str(found), *argv, env=env)


def quick_stage(session: Session) -> Stage:
    """Return the unit tests that take no time, with few examples of each property."""
    return pytest_stage(session, "quick tests", f"{UNIT} and not slow and not long", "--hypothesis-profile", "quick")


def test_stages(session: Session) -> list[Stage]:
    """Return every test, for a machine that has the laboratory.

    What waits for processes, nodes and clusters runs in more workers than there are cores, with one stage beside them.
    """
    return [
        *check_stages(session),
        session.python("kernel modules for Debian 12", "-m", "lab.modules", "bookworm", beside=True),
        e2e_stage(session, "end-to-end tests", "e2e and not long"),
        functional_stage(session, "functional tests", "functional and not nodes and not long"),
        nodes_stage(session, "tests on booted nodes", "nodes and not long"),
        molecule_stage(session, "default"),
        fuzz_stage(session, FUZZ_IN_TESTS_S, jobs=1, beside=True),
    ]


def long_stages(session: Session) -> list[Stage]:
    """Return what takes too long to be among every test: of each kind of test those marked so, each role's scenario."""
    return [
        pytest_stage(session, "long unit tests", f"{UNIT} and long"),
        e2e_stage(session, "long end-to-end tests", "e2e and long"),
        functional_stage(session, "long functional tests", "functional and not nodes and long"),
        nodes_stage(session, "long tests on booted nodes", "nodes and long"),
        molecule_stage(session),
    ]


def functional_stage(session: Session, title: str, marks: str) -> Stage:
    """Return tests of real runtimes and whole processes on this machine."""
    return pytest_stage(session, title, marks, *files_with("functional"), workers=WAITING)


def e2e_stage(session: Session, title: str, marks: str) -> Stage:
    """Return tests on a cluster, which they share: one after the other."""
    return pytest_stage(session, title, marks, *files_with("e2e"), GIVES_UP, workers=1, beside=True)


def nodes_stage(session: Session, title: str, marks: str) -> Stage:
    """Return tests on booted nodes; those of a file share nodes."""
    return pytest_stage(session, title, marks, *files_with("nodes"), GIVES_UP, parted="loadfile", workers=WAITING)


def molecule_stage(session: Session, *names: str) -> Stage:
    """Return scenarios one after the other on the same two nodes: of every role and of all of them, or those named."""
    return session.python("molecule", "-m", "tasks.scenarios", *names, beside=True)


def fuzz_stage(session: Session, seconds: int, *, jobs: int = CORES, beside: bool = False) -> Stage:
    """Return the fuzzers, for that time in all."""
    argv = ("-m", "tests.fuzz", "--seconds", str(seconds), "--jobs", str(jobs))
    return session.python("fuzzers", *argv, cores=jobs, beside=beside)


def model_stage(session: Session, runs: int) -> Stage:
    """Return the exploration of what may happen to rollouts."""
    argv = ("-m", "tests.provision.rollout.model", "--runs", str(runs), "--jobs", str(CORES))
    return session.python("model of rollouts", *argv, cores=CORES)


def demo_stages(session: Session) -> list[Stage]:
    """Return what the demo's first step needs beside a tree; it compiles a kernel module during its first steps."""
    return [
        folder_stage("trixie"),
        plain_python("compiler and kernel headers", "lab", "layer", "trixie", beside=True, about=HALF_A_MINUTE),
        *_own_stages(session),
        session.python("container images", "-m", "lab.images", *DEMO_IMAGES),
    ]


def cluster_stages(session: Session) -> list[Stage]:
    """Return what a cluster needs, whose nodes have simulated kernel modules."""
    return [
        *_go_stages(session, "kubernetes", "containerd"),
        *(stage(suite) for suite in ("trixie", "bookworm") for stage in (tree_stage, folder_stage)),
        *_own_stages(session),
        session.python("container images", "-m", "lab.images"),
    ]


def controller_stages(session: Session) -> list[Stage]:
    """Return what installs grapnel's controller in a cluster."""
    return [*_go_stages(session, "helm"), session.python("image of grapnel", "-m", "tasks.image")]


def lab_stages(session: Session) -> list[Stage]:
    """Return what tests need, which is all that is built once."""
    systems = ("rocky9", "sles15", "ubuntu2404")  # the others are built when a test asks for them, in ten seconds
    return [
        *cluster_stages(session),
        *_go_stages(session, "runc", "crio", "kubeconform", "kwok"),
        session.python("kernel modules of the driver", "-m", "lab.modules", "trixie", cores=2),
        session.python("virtual machines with SELinux and Secure Boot", "-m", "lab.nodes.microvm", beside=True),
        session.python("emulated machine of aarch64", "-m", "lab.nodes.emulated", beside=True),
        *(session.python(f"package sources {name}", "-m", "lab", "sources", name) for name in systems),
        *controller_stages(session),
    ]


def _go_stages(session: Session, *programs: str) -> list[Stage]:
    """Return Go programs, each of which keeps all cores busy; where there is no Go, the first one says so at once."""
    return [
        session.python(
            f"{name} from Go modules", "-m", "lab", "golang", name, cores=CORES, about=GO_TAKES.get(name, HALF_A_MINUTE)
        )
        for name in programs
    ]


def tree_stage(suite: str) -> Stage:
    """Return the tree of a suite's nodes, to which the suite's packages are added then."""
    return plain_python(f"node tree {suite}", "lab", "tree", suite, beside=True, about=HALF_A_MINUTE)


def folder_stage(suite: str) -> Stage:
    """Return the packages that a suite's tree lacks, which are downloaded."""
    return plain_python(f"package folder {suite}", "lab", "bundle", suite, beside=True, about=HALF_A_MINUTE)


def _own_stages(session: Session) -> list[Stage]:
    """Return what every node needs of this checkout."""
    return [
        session.python("simulated NVML", "-m", "lab.nvml"),
        session.python("payload", "-m", "provision.planning.supply.payload", "build", "--output", "dist/payload"),
    ]


def files_with(mark: str) -> list[str]:
    """Return the files with tests of that mark: pytest reads all others for ten seconds, in each of its workers."""
    return [str(path) for path in sorted(Path("tests").rglob("test_*.py")) if names_mark(path, mark)]


def names_mark(path: Path, mark: str) -> bool:
    """Return whether a file names the mark; ``tests/conftest.py`` accepts it from nowhere else."""
    return f"mark.{mark}" in path.read_text(encoding="utf-8")


def pytest_stage(
    session: Session,
    title: str,
    marks: str,
    *argv: str,
    workers: int = CORES,
    parted: str = "worksteal",
    beside: bool = False,
) -> Stage:
    """Return the tests with those marks, so many at once; ``parted`` is a mode of xdist."""
    # In the order of `tests/conftest.py`: left to itself, loadfile keeps files with one long test for the end.
    parallel = ("-n", str(workers), "--dist", parted, "--no-loadscope-reorder") if workers > 1 else ()
    words = ("-m", "pytest", "-q", "--durations=20", "-m", marks, *parallel, *argv)
    return session.python(title, *words, cores=min(workers, CORES), beside=beside)
