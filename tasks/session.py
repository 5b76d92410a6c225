"""What a verb runs its commands in: the environment of the checkout, made once, and where progress is told."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir
from tasks.environment import make_environment
from tasks.errors import StageError
from tasks.host import install_packages, require_machine
from tasks.progress import Progress
from tasks.stage import Stage, plain_python, render_table, require, run_stages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.stage import Result


class Session:
    """One run of a verb."""

    def __init__(self) -> None:
        self.progress = Progress(log_dir=cache_dir() / "logs")
        self.bin = Path(".venv/bin")

    def environment(self, *meanwhile: Stage) -> None:
        """Make the machine and the Python environment ready, and run stages beside the latter that do not need it."""
        require_machine()
        install_packages(self.progress)
        if meanwhile:
            own = plain_python("Python environment", "tasks", "environment", about="a quarter of a minute")
            self.prepare([own, *meanwhile])
        self.python_environment()

    def python_environment(self) -> None:
        """Make the Python environment ready, whatever the machine has."""
        # Thousands of processes are started: without compiled files, most of their time goes into compiling.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPATH"] = str(Path.cwd())  # with -P, the checkout is found through this alone
        self.bin = make_environment(self.progress).absolute()
        os.environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"

    def tool(
        self, title: str, *argv: str, env: Mapping[str, str] | None = None, cores: int = 1, beside: bool = False
    ) -> Stage:
        """Return a stage that runs a tool of the environment."""
        return Stage(title, (str(self.bin / argv[0]), *argv[1:]), env or {}, cores, beside)

    def python(self, title: str, *argv: str, cores: int = 1, beside: bool = False, about: str = "") -> Stage:
        """Return a stage that runs the environment's Python."""
        return replace(self.tool(title, "python", "-P", *argv, cores=cores, beside=beside), about=about)

    def run(self, stages: Sequence[Stage]) -> list[Result]:
        """Run stages; return what came of each."""
        return run_stages(stages, self.progress)

    def prepare(self, stages: Sequence[Stage]) -> None:
        """Run stages that all else depends on."""
        require(self.run(stages))

    def conclude(self, results: Sequence[Result]) -> None:
        """Print a table of what was run; ``StageError`` if anything failed."""
        self.progress.say("done:")
        self.progress.show("\n".join(render_table(results)))
        require(results)

    def show(self, stage: Stage) -> None:
        """Run a stage whose output is the point, where a person can watch it."""
        self.progress.say(f"{stage.title}: {' '.join(stage.argv)}")
        status = subprocess.run(stage.argv, env={**os.environ, **stage.env}, check=False).returncode
        if status:
            raise StageError(f"{stage.title} failed with status {status}")
