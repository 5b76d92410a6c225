"""Further decoders of the controller: what Nodes report, bundles and their signatures, what is packed.

As in ``controller``: an expected failure is an error of the decoder's own kind, everything else is a finding.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import lzma
import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from provision.base.unpacking import BROKEN, open_gzip, open_xz
from provision.cluster.kubernetes.nodes.node_view import view_of
from provision.cluster.kubernetes.nodes.reported import has_gpus, reported_of, users_of
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.objects.pods import Pod
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.read import open_unpacked, unpack_bundle
from provision.planning.supply.bundle.signature import read_signature
from provision.planning.supply.bundle.write import LIST
from provision.report.status_page.details import node_document
from provision.report.status_page.feed import Log
from provision.report.status_page.rows import row_of
from provision.rollout.model import NodeView
from provision.rollout.status.derive import fleet_status
from provision.rollout.status.metrics import render_metrics
from provision.rollout.status.model import Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.planning.supply.bundle.read import Bundle

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
MOST_BYTES = 1 << 22


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[Path]:
    descriptor = os.memfd_create("fuzz")
    try:
        os.write(descriptor, data)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def node_report(data: bytes) -> None:
    """What a Node says of its machine, and its pods after it (parted by ``--``), can be shown as it is."""
    try:
        node, *pods = (
            msgspec.json.decode(part, type=Pod if number else Node) for number, part in enumerate(data.split(b"\n--\n"))
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    assert isinstance(node, Node)
    has_gpus(node)
    view = view_of("n1", node, "cluster")
    told = reported_of(node, view.record if isinstance(view, NodeView) else None, NOW)
    told = replace(told, users=users_of(each for each in pods if isinstance(each, Pod)))
    status = fleet_status(Seen(place="cluster", time=NOW, nodes={"n1": view}, reported={"n1": told}))
    assert render_metrics(status).decode().isascii()
    for each in status.nodes:
        document = node_document(each, status.seen, Log(0))
        json.dumps(document, allow_nan=False)
        assert row_of(each, status.seen).reason.isprintable()
        assert all(text.isprintable() and len(text) <= 2000 for _, text, _ in document["machine"])


def bundle(data: bytes) -> None:
    """A bundle that is taken is unpacked as its list says, and nothing else is; the same bytes may be a signature."""
    with _file(data) as path, tempfile.TemporaryDirectory() as folder:
        found, said = _unpacked(path, Path(folder) / "bundle")
        assert said.isprintable()
        if found is None:
            assert not list(Path(folder).iterdir())
        else:
            assert open_unpacked(found.folder).listing == found.listing
            there = {each.relative_to(found.folder).as_posix() for each in found.folder.rglob("*") if each.is_file()}
            assert there - {LIST} == {each.place for each in found.listing.files}
        with contextlib.suppress(BundleError):
            assert read_signature(path).startswith(b"-----BEGIN SSH SIGNATURE-----\n")


def _unpacked(path: Path, folder: Path) -> tuple[Bundle | None, str]:
    try:
        return unpack_bundle(path, folder), ""
    except BundleError as refusal:
        return None, refusal.message


def packed(data: bytes) -> None:
    """What is unpacked is what Python's own reader makes of it."""
    for opened, reader in ((open_xz, lzma.open), (open_gzip, gzip.open)):
        try:
            found = opened(io.BytesIO(data)).read(MOST_BYTES)
        except BROKEN:
            continue
        with reader(io.BytesIO(data)) as other:
            assert other.read(MOST_BYTES) == found


CARRIED: dict[str, Callable[[bytes], Any]] = {"node-report": node_report, "bundle": bundle, "packed": packed}
