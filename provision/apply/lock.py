"""Keeps two applies of one user off the same machine.

Every apply has a file in the user's state folder that lists its machines, and holds it locked while it runs: whoever
starts reads the others' first. The kernel drops a lock with the process that holds it, so an apply that was killed
blocks nobody; its file stays, and says whose leftover processes are to be ended. A machine is identified by what
Ansible connects to, whatever inventories call it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from provision.apply.errors import LockedError
from provision.apply.runner import end_processes
from provision.base.decoding import decoder_of
from provision.base.errors import os_reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

APPLY_VARIABLE = "GRAPNEL_APPLY"
RUN_VARIABLE = "GRAPNEL_RUN_PROCESS"  # for the lock on the node: what the playbooks of this process do is one run
_GRACE_S = 5.0
_SUFFIX = ".apply"


class _Record(msgspec.Struct, frozen=True):
    """What the file of an apply says: ``machines`` are all spellings of what it connects to.

    An apply of an earlier release says neither who began it nor when.
    """

    pid: int
    inventory: str
    machines: frozenset[str]
    person: str = ""
    began: datetime | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """What an apply wants for itself: the spellings of each machine, the inventory's own first, by its name there.

    ``inventory`` and ``person``, who applies, are for messages.
    """

    inventory: str
    machines: Mapping[str, Sequence[str]]
    person: str = ""

    @property
    def key(self) -> str:
        """16 digits that stand for the machines."""
        spelled = sorted(spellings[0] for spellings in self.machines.values())
        return hashlib.sha256("\n".join(spelled).encode()).hexdigest()[:16]

    def overlap(self, record: _Record) -> list[str]:
        """Return the names of machines that are in the record as well."""
        return [name for name, spellings in self.machines.items() if not record.machines.isdisjoint(spellings)]

    def to_record(self) -> _Record:
        """Return what is written down."""
        machines = frozenset[str]().union(*self.machines.values())
        return _Record(os.getpid(), self.inventory, machines, self.person, datetime.now(UTC))


@contextlib.contextmanager
def lock_machines(claim: Claim, environment: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Keep other applies off the machines; yields the environment variables that mark every process of this one.

    An apply that was killed leaves its ansible-playbook behind, in the middle of a task: where it had one of these
    machines it is ended first, whatever its inventory. Raises LockedError.
    """
    folder = applies_folder(environment)
    path = folder / f"{claim.key}{_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        gate = (folder / "lock").open("a")
    except OSError as error:
        raise LockedError(f"the locks of applies in {folder} cannot be used: {os_reason(error)}") from error
    with contextlib.ExitStack() as stack:
        with gate:  # held for moments, and for as long as it takes to end what a killed apply left
            fcntl.flock(gate, fcntl.LOCK_EX)
            for other in sorted(folder.glob(f"*{_SUFFIX}")):
                _clear(other, claim)
            file = stack.enter_context(path.open("wb"))
            stack.callback(path.unlink, missing_ok=True)  # while it is still locked: the next one makes its own
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(msgspec.json.encode(claim.to_record()))
            file.flush()
        yield {APPLY_VARIABLE: str(path), RUN_VARIABLE: f"{os.getpid()}:{_began()}"}


def _began() -> str:
    """Return when this process began, in ticks since the boot; empty where there is no /proc."""
    try:
        return Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def applies_folder(environment: Mapping[str, str]) -> Path:
    """Return where the files of applies lie: the same for all sessions of a user, with or without a desktop."""
    home = Path(environment.get("HOME") or "~").expanduser()
    return Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / "grapnel" / "applies"


def _clear(path: Path, claim: Claim) -> None:
    """Raise LockedError when an apply of these machines runs; end what is left of one that was killed."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # it has ended meanwhile
        record = _read(file)
        overlap = claim.overlap(record)
        if not overlap:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _locked(overlap, record) from None
        end_processes(APPLY_VARIABLE, str(path), grace_s=_GRACE_S)
        path.unlink(missing_ok=True)


def _read(file: IO[bytes]) -> _Record:
    try:
        return decoder_of(_Record).decode(file.read())
    except (msgspec.MsgspecError, UnicodeDecodeError):  # it was killed before it had written it, and had begun nothing
        return _Record(0, "", frozenset())


def _locked(names: list[str], record: _Record) -> LockedError:
    who = f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"
    by = f" of {record.person}" if record.person else ""
    since = f" since {record.began:%Y-%m-%d %H:%M:%S} UTC" if record.began else ""
    return LockedError(
        f"{who} being changed by process {record.pid}{by}{since} (inventory {record.inventory})",
        hint="wait for it, or end it: wherever that is, the same command goes on from there",
    )
