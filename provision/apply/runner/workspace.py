"""Makes and removes the temporary folder of one run, and keeps what is asked for.

Mode 0700, removed when the run is over; what a run that was killed has left is removed by the next one. The playbook is
reached through a link, and the collection lies in the ``collections`` folder beside that link, where Ansible looks
without ANSIBLE_COLLECTIONS_PATH: a path that the user has set in ansible.cfg goes on to work.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import yaml

from provision.base.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.apply.runner.channel import Header

IDENT: Final = "run"
_PREFIX: Final = "grapnel-run-"
_LOCK: Final = "lock"
_READ_BYTES: Final = 64 * 1024
_LINE_END: Final = "\r\n"
_LINE_LENGTH: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Workspace:
    """The private data folder of ansible-runner for one run."""

    root: Path
    playbook: Path

    @property
    def output(self) -> Path:
        """Where ansible-playbook's output goes: text for people, in which anything may stand."""
        return self.root / "output"

    @property
    def events(self) -> Path:
        """The named pipe of the events."""
        return self.root / "events"

    @property
    def log(self) -> Path:
        """Where the events are written down that are to be kept, without the nodes' answers: they may hold secrets."""
        return self.root / "events.jsonl"

    def log_event(self, header: Header) -> None:
        """Write an event down as a line of JSON, if the disk has room for it."""
        with contextlib.suppress(OSError), self.log.open("ab") as stream:
            stream.write(msgspec.json.encode(header) + b"\n")

    def read_output(self) -> str:
        """Return the beginning of the output, empty when there is none."""
        try:
            with self.output.open("rb") as stream:
                return stream.read(_READ_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

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
    _remove_abandoned(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        _held(Path(folder, _LOCK)),
    ):
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


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold a lock that the kernel drops with the process. It is held before anybody can see that it is there."""
    unseen = lock.with_suffix(".new")
    with unseen.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        unseen.rename(lock)
        yield


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of our own runs that were killed: nobody holds their locks."""
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or made or removed this moment
            status = folder.lstat()
            if status.st_uid != os.geteuid() or not (folder / _LOCK).is_file() or folder.is_symlink():
                continue
            with (folder / _LOCK).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


def keep_artifacts(workspace: Workspace, folder: Path, name: str) -> Path:
    """Copy output and events to ``folder``/``name``, or the next free name."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = _free_folder(folder, name)
    if workspace.log.is_file():
        shutil.copyfile(workspace.log, kept / workspace.log.name)
    if workspace.output.is_file():
        _copy_as_text(workspace.output, kept / workspace.output.name)
    for file in kept.iterdir():
        file.chmod(0o600)
    return kept


def count_artifacts(folder: Path) -> int:
    """Return of how many runs something is kept in a folder."""
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def _copy_as_text(source: Path, target: Path) -> None:
    """Copy an output without what a terminal would act on, should somebody print it."""
    with source.open(encoding="utf-8", errors="replace") as lines, target.open("x", encoding="utf-8") as kept:
        kept.writelines(f"{printable(line.rstrip(_LINE_END), limit=_LINE_LENGTH)}\n" for line in lines)


def _free_folder(folder: Path, name: str) -> Path:
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    kept = next(folder / free for free in names if not (folder / free).exists())
    kept.mkdir(mode=0o700)
    return kept


# Renders extra variables as a file that Ansible reads without evaluating any of their text. Ansible treats an extra
# variable as a template. The text of a plan comes from nodes too (their configuration files), and a node must not be
# able to run a lookup on the controller: such strings are tagged ``!unsafe``, which means "as it is". Only such
# strings, because below that tag ansible-core 2.19 guesses the type of even a quoted text: "1.10" becomes 1.1.

_TEMPLATE = ("{{", "{%", "{#", "#jinja2:")


class _Text(str):
    """A string that goes out with the tag."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes each value where it stands, without references between equal ones."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent(dumper: _Dumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("!unsafe", str(text), style='"')


_Dumper.add_representer(_Text, _represent)


def render_variables(variables: Mapping[str, object]) -> str:
    """Return YAML for ``ansible-playbook --extra-vars @file``. Keys are names and stay plain."""
    return yaml.dump(_tagged(variables), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)


def _tagged(value: object) -> object:
    if isinstance(value, str):
        return _Text(value) if any(mark in value for mark in _TEMPLATE) else value
    if isinstance(value, Mapping):
        return {key: _tagged(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_tagged(one) for one in value]
    return value
