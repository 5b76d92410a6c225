"""The temporary folder of one run, and what is kept of it.

Mode 0700, removed when the run is over. The playbook is reached through a link, and the collection lies in
the ``collections`` folder beside that link, where Ansible looks without ANSIBLE_COLLECTIONS_PATH: a path
that the user has set in ansible.cfg goes on to work.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from provision.runner.variables import render_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IDENT = "run"
# ansible-runner writes the whole environment of the controller, tokens included, into "command".
_NEVER_KEPT = ("command", "fact_cache")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The private data folder of ansible-runner for one run."""

    root: Path
    playbook: Path

    @property
    def artifacts(self) -> Path:
        """Where ansible-runner leaves output and events."""
        return self.root / "artifacts" / IDENT

    def write_variables(self, variables: Mapping[str, object]) -> None:
        """Write the extra variables where ansible-runner looks for them; a long argument overflows too."""
        if variables:
            path = self.root / "env" / "extravars"
            path.parent.mkdir(exist_ok=True)
            path.write_text(render_variables(variables), encoding="utf-8")

    def write_limit(self, nodes: tuple[str, ...]) -> str | None:
        """Write the nodes to a file and return Ansible's --limit: a long list overflows an argument."""
        if not nodes:
            return None
        path = self.root / "limit"
        path.write_text("".join(f"{node}\n" for node in nodes))
        return f"@{path}"


@contextlib.contextmanager
def open_workspace(playbook: Path, collection: Path | None) -> Iterator[Workspace]:
    """Make the folder of a run, remove it afterwards whatever happens."""
    with tempfile.TemporaryDirectory(prefix="grapnel-", ignore_cleanup_errors=True) as folder:
        project = Path(folder) / "project"
        project.mkdir()
        link = project / playbook.name
        link.symlink_to(playbook)
        tasks = playbook.parent / "tasks"
        if tasks.is_dir():  # what the playbook imports lies beside it
            (project / tasks.name).symlink_to(tasks, target_is_directory=True)
        if collection is not None:
            namespace = project / "collections" / "ansible_collections" / "grapnel"
            namespace.mkdir(parents=True)
            (namespace / "node").symlink_to(collection, target_is_directory=True)
        yield Workspace(Path(folder), link)


def keep_artifacts(workspace: Workspace, folder: Path, name: str) -> Path | None:
    """Copy output and events to ``folder``/``name``, or the next free name; None when there are none."""
    if not workspace.artifacts.is_dir():
        return None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = _free_folder(folder, name)
    shutil.copytree(workspace.artifacts, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_NEVER_KEPT))
    return kept


def _free_folder(folder: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    kept = next(folder / free for free in names if not (folder / free).exists())
    kept.mkdir(mode=0o700)
    return kept
