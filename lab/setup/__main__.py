"""``python3 -m lab.setup VERB``: what ``make`` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir, content_key
from lab.setup.environment import make_environment
from lab.setup.errors import SetupError
from lab.setup.host import install_packages, require_machine
from lab.setup.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PACKAGES = ("provision", "runtime_hook", "plugin")
TYPED = (*PACKAGES, "lab", "bench")
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("format", ("ruff", "format", "--check", "-q", ".")),
    ("lint", ("ruff", "check", "-q", ".")),
    ("spelling", ("codespell",)),
    ("types", ("mypy", *TYPED)),
    ("import contracts", ("lint-imports",)),
    ("yaml", ("yamllint", "--strict", ".")),
)
LINTED = ("playbooks", ".ansible-lint", "ansible.cfg", "requirements/dev.txt")
UNIT = "not functional and not nodes and not e2e"
# Named apart from KUBECONFIG, which a shell may well have: `make test` must not find somebody's cluster by accident.
OWN_CLUSTER = "GRAPNEL_E2E_KUBECONFIG"
FUZZ_IN_TESTS_S = 120
FUZZ_S = 1800


VERBS = ("environment", "check", "lab", "test", "fuzz", "e2e", "demo", "bench", "cluster")


class Session:
    """One run of a verb: its progress, and the environment once it is made."""

    def __init__(self) -> None:
        self.progress = Progress(log_dir=cache_dir() / "logs")
        self.bin = Path(".venv/bin")

    def environment(self) -> None:
        """Host packages and Python packages."""
        require_machine()
        install_packages(self.progress)
        self.bin = make_environment(self.progress).absolute()
        os.environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"

    def tool(self, title: str, *argv: str, env: Mapping[str, str] | None = None) -> None:
        """Run a tool of the environment as a step that shows its output only when it fails."""
        self.progress.run(title, [str(self.bin / argv[0]), *argv[1:]], env=env)

    def python(self, title: str, *argv: str, stream: bool = False) -> None:
        """Run the environment's Python as a step. ``-P``: the checkout is found through PYTHONPATH alone."""
        python = [str(self.bin / "python"), "-P", *argv]
        self.progress.run(title, python, env={"PYTHONPATH": str(Path.cwd())}, stream=stream)

    def pytest(self, title: str, marks: str, *argv: str) -> None:
        """Run the tests that carry ``marks`` and show what pytest prints."""
        self.python(title, "-m", "pytest", "-m", marks, *argv, stream=True)

    def check(self) -> None:
        """Format, lint, types, import contracts, unit tests: what a person runs while working."""
        self.environment()
        self._checks()

    def _checks(self) -> None:
        for title, argv in CHECKS:
            self.tool(title, *argv)
        path = {"MYPYPATH": "playbooks/collections"}  # the collection is typed under the name that Ansible gives it
        self.tool("types of the collection", "mypy", "-p", "ansible_collections.grapnel.node.plugins", env=path)
        self._ansible_lint()
        self.python("promtool from Debian's package", "-m", "lab.promtool")  # reads the alert rules in a unit test
        self.pytest("unit tests", UNIT, "-q", "-n", "2")

    def _ansible_lint(self) -> None:
        """Lint the collection; a quarter of a minute, so not again for what has passed."""
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", *LINTED], capture_output=True, check=True
        )
        files = [Path(name) for name in sorted(listed.stdout.decode().splitlines())]
        passed = cache_dir() / "ansible-lint" / content_key(*(path.read_bytes() for path in files if path.is_file()))
        if passed.exists():
            self.progress.say("ansible-lint: nothing has changed since it passed")
            return
        self.tool("ansible-lint", "ansible-lint", "--offline", "-q", "playbooks")
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()

    def lab(self) -> None:
        """Everything that is built once: Go programs, simulated NVML, node trees, packages, images, payload."""
        self.environment()
        self._stage()
        self._lab()

    def _stage(self) -> None:
        """Build what a real cluster runs: first of all, so that a machine without Go is told so at once."""
        for program in ("kubernetes", "containerd"):  # the first one wants the newer Go
            self.python(f"{program} from Go modules", "-m", "lab", "golang", program)

    def _lab(self) -> None:
        self.python("simulated NVML", "-m", "lab.nvml")
        for suite in ("trixie", "bookworm"):
            self.python(f"node tree {suite}", "-m", "lab", "tree", suite)
            self.python(f"package folder {suite}", "-m", "lab", "bundle", suite)
        self.python("container images", "-m", "lab.images")
        self.python("payload", "-m", "provision.payload", "build", "--output", "dist/payload")

    def test(self) -> None:
        """Set everything up and pass every test."""
        self.environment()
        self._stage()
        self._checks()
        self._fuzz(FUZZ_IN_TESTS_S)
        self._lab()
        self.pytest("functional tests", "functional and not nodes", "-q")
        self.tool("molecule", "molecule", "test")
        self.pytest("tests on booted nodes", "nodes", "-q")
        self.pytest("end-to-end tests", "e2e", "-q")
        self.progress.say("every test passed")

    def fuzz(self) -> None:
        """Run the fuzzers for longer: ``SECONDS`` in all."""
        self.environment()
        self._fuzz(int(os.environ.get("SECONDS", FUZZ_S)))

    def _fuzz(self, seconds: int) -> None:
        self.python("fuzzers", "-m", "tests.fuzz", "--seconds", str(seconds), stream=True)

    def e2e(self) -> None:
        """Pass the end-to-end tests: on a stage that is set up for them, or on the cluster that KUBECONFIG names."""
        kubeconfig = os.environ.get("KUBECONFIG")
        if kubeconfig:
            self.bin = make_environment(self.progress).absolute()
            os.environ[OWN_CLUSTER] = kubeconfig
            self.progress.say(f"on the cluster of {kubeconfig}: tests that look into nodes or break them are skipped")
        else:
            self.lab()
        self.pytest("end-to-end tests", "e2e", "-q")

    def demo(self) -> None:
        """Set everything up and run the main job where a person can watch it."""
        self.environment()
        self._lab()
        self.python("demo", "-m", "lab.demo", stream=True)

    def cluster(self) -> None:
        """Set everything up, start a cluster of GPU nodes and leave it running; ``FOLDER`` keeps its declaration."""
        self.lab()
        self.python("cluster", "-m", "lab", "cluster", "up", stream=True)
        folder = os.environ.get("FOLDER", "")
        self.python(
            "GPU nodes", "-m", "lab", "cluster", "apply", *(["--folder", folder] if folder else []), stream=True
        )

    def bench(self) -> None:
        """Print the figures of every benchmark with their floors beside them."""
        self.lab()
        self.python("benchmarks", "-m", "bench", stream=True)


def main(argv: Sequence[str]) -> int:
    """Run one verb; exit status 0 done, 1 with the reason in one line, 2 for an unknown verb."""
    session = Session()
    verbs: dict[str, Callable[[], None]] = {name: getattr(session, name) for name in VERBS}
    if len(argv) != 1 or argv[0] not in verbs:
        print(f"usage: python3 -m lab.setup {{{'|'.join(verbs)}}}", file=sys.stderr)
        return 2
    try:
        verbs[argv[0]]()
    except SetupError as error:
        session.progress.say(f"stopped: {error}")
        return 1
    except KeyboardInterrupt:
        session.progress.say("stopped: interrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
