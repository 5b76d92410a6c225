"""Scans the host for the driver and builds the inventory. Never NVML, never a process.

What is looked for stands in ``driverfiles``; how, in ``libraries``, ``files`` and ``devices``.
"""

from __future__ import annotations

from runtime_hook.host.devices import find_devices
from runtime_hook.host.driverfiles import FAMILY_FOLDERS, MPS_FOLDER, SERVICE_SOCKETS
from runtime_hook.host.files import find_binaries, find_files
from runtime_hook.host.fingerprint import take_fingerprint
from runtime_hook.host.gpumodels import cuda_version
from runtime_hook.host.inventory import Fingerprint, Inventory
from runtime_hook.host.libraries import (
    LOADER_CACHE,
    driver_version,
    find_abis,
    find_anchors,
    find_libraries,
    find_links,
)
from runtime_hook.host.nvmlfacts import merge_facts, read_facts
from runtime_hook.loader.platforms import this_platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.host.hosttree import HostTree


def discover(tree: HostTree, facts_path: str = "") -> Inventory:
    """Scan the host; InventoryError when it has no driver libraries.

    ``facts_path`` is where the node daemon leaves what NVML says. The fingerprint is taken first: what changes during
    the scan makes the inventory stale.
    """
    tree.forget()
    native, compat32 = find_abis(tree, this_platform())
    anchors = find_anchors(tree, native)
    watched = [*anchors, LOADER_CACHE, *native.folders, *compat32.folders, *FAMILY_FOLDERS]
    watched += [*(path for path, _ in SERVICE_SOCKETS), MPS_FOLDER]
    before = take_fingerprint(tree, watched, outside=(facts_path,) if facts_path else ())
    devices = find_devices(tree)
    version = driver_version(tree, anchors)
    libraries = find_libraries(tree, native, version)
    inventory = Inventory(
        driver_version=version,
        control=devices.control,
        gpus=devices.gpus,
        libraries=libraries + find_libraries(tree, compat32, version),
        binaries=find_binaries(tree),
        fingerprint=Fingerprint(**{**vars(before), "devices": devices.marks}),
        mig=devices.mig,
        files=find_files(tree, native.folders, version),
        links=find_links(libraries, version),
        cuda_version=cuda_version(version),
        stale=devices.stale,
        imex=devices.imex,
    )
    return merge_facts(inventory, read_facts(facts_path)) if facts_path else inventory
