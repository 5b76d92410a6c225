"""Reads what lies on a node for the exchange of an engine: package files of another version, and those that lead back.

The set is sealed when it is complete, and counts as long as its files are as they were written and the packages that it
changes are as they were then. Whatever else is in the folder was left by a run that was killed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.seal import SealError, require_sealed
from ansible_collections.grapnel.node.plugins.module_utils.packages.installed import find_reader
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import ReadInstalled

HOME = "/var/lib/grapnel/engine"
STAGED = f"{HOME}/staged"
HANDED = "/var/lib/grapnel/engine-packages/incoming"  # a folder for what is handed over at once
WORK = f"{HOME}/work"  # the package manager's notes on a transaction
THERE, BACK, DESCRIPTION = "there", "back", "set.json"


class StagedError(Exception):
    """Nothing is staged, or it cannot be used; the message says why."""


@dataclass(frozen=True)
class EngineSet:
    """Package files that bring ``wanted`` (versions by name), and those that lead back from there.

    ``replaced`` are the versions of all packages that change, "" for one that was not there. ``there`` and ``back`` are
    names of files, in folders of these names. ``caveat`` is what is wrong with the way back, empty where nothing is.
    ``is_handed``: the controller has handed over what comes.
    """

    wanted: Mapping[str, str]
    replaced: Mapping[str, str]
    there: tuple[str, ...]
    back: tuple[str, ...]
    caveat: str = ""
    is_handed: bool = False

    @property
    def way_there(self) -> Transaction:
        return _transaction(THERE, self.there)

    @property
    def way_back(self) -> Transaction | str:
        """What leads back, or why nothing does."""
        return _transaction(BACK, self.back) if self.back else self.caveat

    def document(self) -> dict[str, Any]:
        """Return it as it is kept beside its files."""
        return asdict(self)


def _transaction(folder: str, names: tuple[str, ...]) -> Transaction:
    return Transaction(tuple(f"{STAGED}/{folder}/{name}" for name in names), (), WORK)


def read_set(host: Host, read: ReadInstalled) -> EngineSet:
    """Return the set that is staged; raises `StagedError`, `PackageError`."""
    if not host.path(STAGED).is_dir():
        raise StagedError("nothing was staged")
    try:
        require_sealed(host, STAGED)
        said = json.loads(host.read_text(f"{STAGED}/{DESCRIPTION}") or "")
        ways = tuple(said[THERE]), tuple(said[BACK])
        found = EngineSet(said["wanted"], said["replaced"], *ways, said["caveat"], said["is_handed"])
    except SealError as error:
        raise StagedError(str(error)) from error
    except (ValueError, LookupError, TypeError) as error:
        raise StagedError(f"{STAGED}/{DESCRIPTION} cannot be read") from error
    installed = read(host, list(found.replaced))
    now = {name: installed[name].version if name in installed else "" for name in found.replaced}
    moved = [
        f"{name} ({was or 'not installed'} then, {now[name] or 'not installed'} now)"
        for name, was in found.replaced.items()
        if now[name] != was
    ]
    if moved:
        raise StagedError(f"packages were changed after it was staged: {', '.join(moved)}")
    return found


def read_engine_staged(host: Host) -> dict[str, Any] | None:
    """Return the facts ``engine_staged``, None where nothing lies there; files are digested."""
    left = {*host.names(HOME)} - {WORK.rpartition("/")[2]}  # which a rehearsal leaves
    if not left and not host.names(HANDED):
        return None
    try:
        found = read_set(host, find_reader(host))
    except (StagedError, PackageError, OSError):
        return {"packages": {}, "complete": False, "bytes": 0}
    files = [path for path in host.path(STAGED).rglob("*") if path.is_file()]
    return {
        "packages": dict(found.wanted),
        "complete": True,
        "bytes": sum(path.stat().st_size for path in files),
    }
