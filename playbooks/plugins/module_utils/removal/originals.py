"""Remembers what was on a node before grapnel changed it, so that `removal` can give it back.

One document, ``/var/lib/grapnel/originals.json`` (docs/contracts/originals), is written before the change that it is
about, so a run that is killed in between leaves a document that is true either way. Of a file it has the text before
the first change and the text that was written last. When somebody has edited the file in between, the next change
moves the edit into the text before: what is given back is the file as it would be without grapnel.

Of files that releases without a record have written, what is grapnel's alone goes. How a file of somebody else was
before is not known: what can be told to be grapnel's is taken out, and the rest is said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.driver.record.durable import write_durably
from ansible_collections.grapnel.node.plugins.module_utils.engines.docker import without_ours
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD, DOCKER, ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import DAEMON_UNIT
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import (
    HOOK_CONFIG,
    NODE_CONFIG,
    OF_HOOK,
    Reader,
    is_drivers,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.texts import take_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

PLACE = "/var/lib/grapnel/originals.json"
SCHEMA = "grapnel.dev/originals/v1alpha1"
_LIMIT_BYTES = 16 * 1024 * 1024
# What releases of grapnel that kept no record have written.
_DAEMON = Reader(DAEMON_UNIT)
_READERS = {
    each.name: Reader(each.units[0] if each.units else "", each.name, reloads=each.reloads) for each in ENGINES.values()
}
_OWN = {
    **{path: _READERS[each.name] for each in ENGINES.values() for path in each.ours},
    "/etc/grapnel/declared-devices.json": _DAEMON,
    HOOK_CONFIG: Reader(),
    "/etc/grapnel/gpu-settings.json": Reader(),
    "/etc/grapnel/mig-layout.json": Reader(),
    NODE_CONFIG: _DAEMON,
    "/etc/grapnel/nvidia.json": _DAEMON,
    f"/etc/systemd/system/{DAEMON_UNIT}": _DAEMON,
}
# NVIDIA's toolkit has files of the same names.
_IF_MARKED = {path: _READERS[each.name] for each in ENGINES.values() for path in each.marked}
(_CONTAINERD_DROP_IN,) = CONTAINERD.marked
_MARK = "managed by grapnel"
_TEXT_LIMIT_BYTES = 256 * 1024


class OriginalsError(Exception):
    """The document cannot be read; the message says what to do."""


@dataclass(frozen=True)
class Original:
    """A file that grapnel changed: ``before`` is None for one that was not there, ``written`` for one taken away.

    ``is_mixed``: somebody has changed the same lines as grapnel, and ``before`` may hold some of grapnel's.
    """

    before: FileText | None
    written: FileText | None
    reader: Reader
    is_mixed: bool = False


@dataclass(frozen=True)
class Packages:
    """The packages that came with an engine; folders of its ``data`` and ``groups`` of users that were not there."""

    names: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Originals:
    """What was there before; ``folders`` were not.

    ``packages`` came with an engine, by its name. ``units`` are how engines' services were: enabled, active. ``held``
    are packages of engines that nobody held.
    """

    files: Mapping[str, Original] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    packages: Mapping[str, Packages] = field(default_factory=dict)
    units: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    held: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing is remembered."""
        return not (self.files or self.folders or self.packages or self.units or self.held)


def read_originals(host: Host) -> Originals:
    """Return the document, an empty one where there is none; raises `OriginalsError`."""
    try:
        with host.open(PLACE) as stream:
            data = stream.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return Originals()
    except OSError as error:
        raise OriginalsError(f"{PLACE} cannot be read: {error.strerror or error}") from error
    return parse_originals(data)


def parse_originals(data: bytes) -> Originals:
    """Return a document from its JSON; raises `OriginalsError`."""
    try:
        tree = json.loads(data)
        schema = tree["schema"]
        if schema == SCHEMA:
            return _parse(tree)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise OriginalsError(
            f"{PLACE}, which tells what was there before grapnel, is damaged ({type(error).__name__}): restore it from "
            "a backup, or move it away; then what it told cannot be given back"
        ) from error
    raise OriginalsError(f"{PLACE} has schema {str(schema)[:100]!r}: it was written by another version of grapnel")


def write_originals(host: Host, originals: Originals) -> None:
    """Replace the document as a whole; an empty one goes. Raises OSError."""
    place = host.path(PLACE)
    if originals.is_empty:
        place.unlink(missing_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    write_durably(place, json.dumps(_document(originals), indent=1, sort_keys=True).encode("ascii"))


def remember_changes(host: Host, changes: Iterable[FileDifference], reader: Reader) -> None:
    """Remember what files are before they are changed; raises `OriginalsError`, or OSError."""
    ours = [change for change in changes if not is_drivers(change.after.path)]
    if not ours:
        return
    originals = read_originals(host)
    # What a release without records has written is not what was there before grapnel.
    files = {**find_unrecorded(host, originals, [change.after.path for change in ours]).files, **originals.files}
    folders = dict.fromkeys(originals.folders)
    for change in ours:
        path = change.after.path
        # The hook reads its own file at every start of a container, the policy is told by another step: no service is.
        files[path] = next_original(files.get(path), change, Reader() if path in OF_HOOK else reader)
        missing = [folder for folder in _parents(change.place) if not host.path(folder).exists()]
        folders.update(dict.fromkeys(missing))
    known = replace(originals, files=files, folders=tuple(sorted(folders)))
    if known != originals:
        write_originals(host, known)


def remember_unit(host: Host, unit: str, *, enabled: bool, active: bool) -> None:
    """Remember how the service of an engine was, the first time."""
    originals = read_originals(host)
    if unit not in originals.units:
        write_originals(host, replace(originals, units={**originals.units, unit: (enabled, active)}))


def remember_packages(host: Host, engine: str, coming: Packages) -> None:
    """Remember which packages are about to be installed for an engine, beside those of a run that was cut short."""
    originals = read_originals(host)
    known = originals.packages.get(engine, Packages())
    packages = Packages(
        *(tuple(sorted({*getattr(known, key), *getattr(coming, key)})) for key in ("names", "data", "groups"))
    )
    if packages != known:
        write_originals(host, replace(originals, packages={**originals.packages, engine: packages}))


def remember_held(host: Host, names: Collection[str], *, held: bool) -> None:
    """Remember packages that are about to be held, which nobody held, or forget those that were let go."""
    originals = read_originals(host)
    known = {*originals.held, *names} if held else {*originals.held} - {*names}
    if known != {*originals.held}:
        write_originals(host, replace(originals, held=tuple(sorted(known))))


def next_original(known: Original | None, change: FileDifference, reader: Reader) -> Original:
    """Return what is to be remembered of a file that is about to be changed, possibly once more. Pure."""
    present, written = change.before, None if change.after.is_absent else change.after
    if known is None:
        return Original(present, written, reader)
    if is_text_of(present, known.before) or is_text_of(present, known.written):
        return replace(known, written=written, reader=reader)
    taken = take_out(change.after.path, known.before, known.written, present)
    return Original(taken.text, written, reader, is_mixed=not taken.is_whole)


def is_text_of(present: FileText | None, known: FileText | None) -> bool:
    """Tell whether a file has the text that is known of it."""
    if present is None or known is None:
        return present is known
    return present.content == known.content


def _parents(path: str) -> Iterable[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def _parse(tree: dict[str, Any]) -> Originals:
    files = {str(path): _parse_original(str(path), one) for path, one in tree["files"].items()}
    return Originals(
        files=files,
        folders=tuple(str(one) for one in tree["folders"]),
        packages={str(engine): _parse_packages(one) for engine, one in tree["packages"].items()},
        units={str(unit): (one["enabled"] is True, one["active"] is True) for unit, one in tree["units"].items()},
        held=tuple(str(name) for name in tree.get("held", ())),
    )


def _parse_packages(tree: dict[str, Any]) -> Packages:
    return Packages(*(tuple(str(one) for one in tree[key]) for key in ("names", "data", "groups")))


def _parse_original(path: str, tree: dict[str, Any]) -> Original:
    reader = Reader(str(tree["unit"]), str(tree["engine"]), reloads=tree["reloads"] is True)
    before, written = (_parse_text(path, tree[name]) for name in ("before", "written"))
    return Original(before, written, reader, is_mixed=tree["mixed"] is True)


def _parse_text(path: str, tree: dict[str, Any] | None) -> FileText | None:
    if tree is None:
        return None
    owner = tree["owner"]
    return FileText(path, str(tree["content"]), int(tree["mode"], 8), owner and (int(owner[0]), int(owner[1])))


def _document(originals: Originals) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "files": {path: _describe(one) for path, one in originals.files.items()},
        "folders": list(originals.folders),
        "packages": {
            engine: {"names": list(one.names), "data": list(one.data), "groups": list(one.groups)}
            for engine, one in originals.packages.items()
        },
        "units": {unit: {"enabled": one[0], "active": one[1]} for unit, one in originals.units.items()},
        **({"held": list(originals.held)} if originals.held else {}),
    }


def _describe(original: Original) -> dict[str, Any]:
    return {
        "before": _describe_text(original.before),
        "written": _describe_text(original.written),
        "unit": original.reader.unit,
        "engine": original.reader.engine,
        "reloads": original.reader.reloads,
        "mixed": original.is_mixed,
    }


def _describe_text(text: FileText | None) -> dict[str, Any] | None:
    if text is None:
        return None
    owner = list(text.owner) if text.owner else None
    return {"content": text.content, "mode": f"{text.mode:04o}", "owner": owner}


@dataclass(frozen=True)
class Unrecorded:
    """Files without a record, as the originals that can be made up for them, and what cannot be given back."""

    files: dict[str, Original]
    notes: tuple[str, ...] = ()


def find_unrecorded(host: Host, originals: Originals, only: Collection[str] | None = None) -> Unrecorded:
    """Return the files of grapnel's that ``originals`` does not tell of, of ``only`` these paths if it is given."""
    found: dict[str, Original] = {}
    notes: list[str] = []
    for path, reader in (*_OWN.items(), *_IF_MARKED.items()):
        text = _text_of(host, path)
        is_ours = text is not None and (path in _OWN or text.startswith(f"# {_MARK}"))
        if is_ours and path not in originals.files and (only is None or path in only):
            found[path] = Original(None, FileText(path, text or "", 0o644), reader, is_mixed=True)
    drop_in = originals.files.get(_CONTAINERD_DROP_IN, found.get(_CONTAINERD_DROP_IN))
    if drop_in is not None and drop_in.is_mixed and CONTAINERD.main not in originals.files:
        notes.append(
            f"{CONTAINERD.main} keeps its imports: grapnel has no record of how it was before; one that matches no "
            "file does nothing"
        )
    docker = None if DOCKER.main in originals.files else _of_docker(_text_of(host, DOCKER.main))
    if docker is not None and (only is None or DOCKER.main in only):
        found[DOCKER.main] = docker
        notes.append(f"{DOCKER.main} keeps its layout and features: grapnel has no record of how it was before")
    return Unrecorded(found, tuple(notes))


def _of_docker(text: str | None) -> Original | None:
    before = without_ours(text)
    if before is None:
        return None
    was = FileText(DOCKER.main, json.dumps(before, indent=2, ensure_ascii=False) + "\n", 0o644)
    return Original(was if before else None, FileText(DOCKER.main, text or "", 0o644), _READERS[DOCKER.name])


def _text_of(host: Host, path: str) -> str | None:
    try:
        with host.open(path) as stream:
            return stream.read(_TEXT_LIMIT_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None
