"""Which claims are prepared on this node: a file for each, so that one that cannot be read costs no other claim.

`claims/UID.json` in the daemon's state folder (contract `docs/contracts/claim`): written before a claim's devices are
given to anyone, removed when no pod has them any more. Neither needs the driver, nor the API. Each DRA driver has a
folder of its own. Beside it: the file by which engines know the devices.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.documents import list_of, member, members, read_object, read_versioned, text, truth, whole
from plugin.base.errors import ClaimError, MigError, os_reason
from plugin.dra.claims import ClaimName
from plugin.dra.configs import AS_IT_IS, parse_recorded
from plugin.dra.partitions import is_partition
from plugin.kubelet.cdi_names import MemoryPart
from plugin.settings.node_config import IN_CLUSTER
from plugin.system.durable import flush_folder, read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.dra.configs import DeviceConfig

SCHEMA = "grapnel.dev/claim/v1alpha1"
FOLDER = "claims"
PARTITIONS = f"{FOLDER}/partitions"
_PUBLISHED = "published"  # where slices were published, so that they can be taken back whatever is declared by then
_MAX_BYTES = 256 * 1024
_CDI_MODE = 0o644
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")
_TEXT = text(253)


class Edits(NamedTuple):
    """What engines add to a container under one name; `content` is `containerEdits` of CDI, as JSON."""

    name: str
    content: str


class PreparedDevice(NamedTuple):
    """A device of a claim. `parts` are the UUIDs that no other claim may have meanwhile; none of one seen as an admin.

    `edits` are what a container gets for as long as the claim is prepared, None where that follows from the device.
    """

    request: str
    pool: str
    device: str
    uuid: str
    parts: tuple[str, ...] = ()
    is_admin: bool = False
    share_id: str = ""
    shares: int = 1
    sharing: DeviceConfig = AS_IT_IS
    memory_bytes: int = 0  # what it has of a device whose memory is shared
    memory_number: int = 0  # tells it from other parts of that size of the same device
    edits: tuple[Edits, ...] | None = None
    domain: str = ""  # uid of the ComputeDomain that has the node's IMEX channel

    @property
    def memory_part(self) -> MemoryPart:
        """The part of its device's memory, of one whose memory is shared."""
        return MemoryPart(self.uuid, self.memory_bytes, self.memory_number)


class Record(NamedTuple):
    """A prepared claim."""

    claim: ClaimName
    devices: tuple[PreparedDevice, ...]


def is_uid(value: str) -> bool:
    """Whether a text can be a UID, and so the name of a file."""
    return _UID.fullmatch(value) is not None


def render_record(record: Record) -> str:
    """Return the file of a record."""
    claim = record.claim
    devices = [
        {
            "request": each.request,
            "pool": each.pool,
            "device": each.device,
            "uuid": each.uuid,
            "parts": list(each.parts),
            "adminAccess": each.is_admin,
            "shareId": each.share_id,
            "shares": each.shares,
            **({"memoryBytes": each.memory_bytes} if each.memory_bytes else {}),
            **({"memoryNumber": each.memory_number} if each.memory_number else {}),
            **({"domain": each.domain} if each.domain else {}),
            **({} if each.sharing == AS_IT_IS else {"sharing": each.sharing.to_json()}),
            **({} if each.edits is None else {"edits": [_edits_to_json(*edits) for edits in each.edits]}),
        }
        for each in record.devices
    ]
    document = {"schema": SCHEMA, "namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
    return json.dumps({**document, "devices": devices}, indent=1) + "\n"


def _edits_to_json(name: str, content: str) -> dict[str, object]:
    return {"name": name, "containerEdits": json.loads(content)}


def parse_record(content: bytes, uid: str) -> Record:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, _MAX_BYTES, SCHEMA)
    claim = ClaimName(
        member(document, "namespace", _TEXT), member(document, "name", _TEXT), member(document, "uid", _TEXT)
    )
    if claim.uid != uid:
        raise ValueError("uid is not that of the file's name")
    return Record(claim, tuple(map(_device, member(document, "devices", list_of(members)))))


def _device(row: Mapping[str, object]) -> PreparedDevice:
    return PreparedDevice(
        member(row, "request", _TEXT),
        member(row, "pool", _TEXT),
        member(row, "device", _TEXT),
        member(row, "uuid", _TEXT),
        member(row, "parts", list_of(_TEXT)),
        member(row, "adminAccess", truth),
        member(row, "shareId", _TEXT),
        member(row, "shares", whole(1)),
        member(row, "sharing", parse_recorded, AS_IT_IS),
        member(row, "memoryBytes", whole(1), 0),
        member(row, "memoryNumber", whole(1), 0),
        member(row, "edits", _edits, None),
        member(row, "domain", _TEXT, ""),
    )


def _edits(value: object) -> tuple[Edits, ...]:
    rows = list_of(members)(value)
    return tuple(Edits(member(row, "name", _TEXT), json.dumps(member(row, "containerEdits", members))) for row in rows)


class Published(NamedTuple):
    """Through which API, a kubeconfig's path, and as which Node slices are published."""

    api: str
    node: str


def published_in(state_folder: Path, folder: str = FOLDER) -> Published | None:
    """Return where slices were published last, None where there are none or it is not known."""
    try:
        document = read_object(read_bounded(state_folder / folder / _PUBLISHED, _MAX_BYTES), _MAX_BYTES)
        return Published(member(document, "kubernetesApi", text(4096)), member(document, "nodeName", _TEXT))
    except (OSError, ValueError):
        return None


def as_published(before: Published | None, now: Published) -> Published:
    """Return where slices of before are, by what reaches the API: a pod has no kubeconfig, and a unit no account."""
    if before is None or (now.api and (before.api == IN_CLUSTER) != (now.api == IN_CLUSTER)):
        return now
    return before


class ClaimStore:
    """The records of a driver, in memory and on the disk."""

    def __init__(self, state_folder: Path, logger: Logger, folder: str = FOLDER) -> None:
        self._folder = state_folder / folder
        self._log = logger
        self._records: dict[str, Record] = {}
        self._unreadable: dict[str, Path] = {}
        self._published = published_in(state_folder, folder)
        self._is_over = False

    def __bool__(self) -> bool:
        """Whether any claim is prepared."""
        return bool(self._records or self._unreadable)

    @property
    def unknown(self) -> str:
        """The file of a claim of which it is not known what it has, "" where there is none."""
        return str(next(iter(self._unreadable.values()), ""))

    def load(self) -> None:
        """Read the folder. A claim whose file cannot be read is prepared anew when it is asked for."""
        try:
            paths = sorted(self._folder.glob("*.json"))
        except OSError:
            paths = []
        for path in paths:
            try:
                self._records[path.stem] = parse_record(read_bounded(path, _MAX_BYTES + 1), path.stem)
            except (OSError, ValueError) as error:
                self._unreadable[path.stem] = path
                hint = "it goes when its pods end; until then the device plugin gives nothing away"
                self._log.warning(f"{path}: a prepared claim cannot be read", problem=str(error)[:256], hint=hint)

    def find(self, uid: str) -> Record | None:
        """Return the record of a claim."""
        return self._records.get(uid)

    def records(self) -> tuple[Record, ...]:
        """Return what is prepared."""
        return tuple(self._records.values())

    def held(self) -> Iterator[tuple[ClaimName, PreparedDevice]]:
        """Yield which claim has which device, or a share of it; not who only sees one."""
        for record in self._records.values():
            yield from ((record.claim, each) for each in record.devices if each.parts)

    def put(self, record: Record) -> None:
        """Remember a claim; raises ClaimError, and then it is not remembered."""
        if self._is_over:
            raise ClaimError(f"{record.claim}: this node gives its devices by the device plugin by now")
        content = render_record(record)
        if len(content.encode()) > _MAX_BYTES:  # no later daemon would read it
            words = f"{record.claim} adds more than {_MAX_BYTES // 1024} KiB to a container"
            raise ClaimError(words, "ask for fewer devices in a claim, or have their classes add less")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path(record.claim.uid), content)
        except OSError as error:
            raise ClaimError(f"{self._folder} cannot be written: {os_reason(error)}") from error
        self._records[record.claim.uid] = record
        self._unreadable.pop(record.claim.uid, None)

    def remove(self, uid: str) -> bool:
        """Forget a claim; returns whether it was known. Raises ClaimError."""
        try:
            self._path(uid).unlink(missing_ok=True)
            if uid in self._records or uid in self._unreadable:
                flush_folder(self._folder)
        except OSError as error:
            raise ClaimError(f"{self._path(uid)} cannot be removed: {(error.strerror or '').lower()}") from error
        was_unreadable = self._unreadable.pop(uid, None) is not None
        return self._records.pop(uid, None) is not None or was_unreadable

    def note_published(self, where: Published) -> bool:
        """Remember where slices are about to be published; False where that cannot be written, and none may be."""
        if where == self._published:
            return True
        document = {"kubernetesApi": where.api, "nodeName": where.node}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._folder / _PUBLISHED, json.dumps(document) + "\n")
        except OSError as error:
            problem = f"{self._folder} cannot be written: {os_reason(error)}"
            self._log.standing(self._folder.name, problem, hint="no device is offered to claims until it can")
            return False
        self._published = where
        self._log.standing(self._folder.name)
        return True

    def remove_folder(self) -> None:
        """Remove the folder, as there is no claim in it, and no slice any more; none is remembered after that."""
        self._is_over = True
        with suppress(OSError):
            (self._folder / _PUBLISHED).unlink(missing_ok=True)
            _remove(self._folder)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{uid}.json"


class CdiFile:
    """What engines read of a driver's devices."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = ""

    @property
    def is_there(self) -> bool:
        """Whether there is one, also of the daemon before this one."""
        return self._path.exists()

    def write(self, content: Mapping[str, object]) -> None:
        """Have it say this, and be there; raises ClaimError."""
        text = json.dumps(content, indent=1) + "\n"
        if text == self._written and self.is_there:
            return
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(self._path, text, _CDI_MODE)
        except OSError as error:
            words = os_reason(error)
            raise ClaimError(f"{self._path} cannot be written: {words}") from error
        self._written = text

    def remove(self) -> None:
        """Remove it, where that can be."""
        with suppress(OSError):  # it is not asked for any more
            self._path.unlink(missing_ok=True)


class PartitionStore:
    """Which MIG devices are made for claims, or are about to be: an empty file for each, which has its name."""

    def __init__(self, state_folder: Path) -> None:
        self._state_folder = state_folder
        self._folder = state_folder / PARTITIONS
        self.names = set(read_partitions(state_folder))

    def look_again(self) -> None:
        """Know also what the keeper before this one, whose last call ran on, has noted since."""
        self.names |= read_partitions(self._state_folder)

    def note(self, name: str) -> None:
        """Remember one before it is made; raises MigError, and then it is not remembered."""
        if name in self.names:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._folder / name, "")
        except OSError as error:
            raise MigError(f"{self._folder} cannot be written: {os_reason(error)}") from error
        self.names.add(name)

    def forget(self, name: str) -> None:
        """Forget one that is gone; raises MigError."""
        try:
            (self._folder / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                flush_folder(self._folder)
        except OSError as error:
            words = os_reason(error)
            raise MigError(f"{self._folder / name} cannot be removed: {words}") from error
        self.names.discard(name)

    def remove_folder(self) -> None:
        """Remove the folder, as there is nothing in it any more."""
        with suppress(OSError):
            _remove(self._folder)


def _remove(folder: Path) -> None:
    """Remove a folder, with what a process that was killed was about to put in place; raises OSError."""
    for unfinished in folder.glob(".*.new"):
        unfinished.unlink()
    folder.rmdir()


def read_partitions(state_folder: Path) -> frozenset[str]:
    """Return the partitions that have a file."""
    try:
        return frozenset(each.name for each in (state_folder / PARTITIONS).iterdir() if is_partition(each.name))
    except OSError:
        return frozenset()
