"""Leaves what NVML said in a file for the container hook (contract `docs/contracts/nvml-facts`).

Not here: asking NVML, and what the hook makes of it.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.devices.inventory import Inventory
    from plugin.driver.snapshot import GpuFacts

SCHEMA = "grapnel.dev/nvml-facts/v1alpha1"
_MODE = 0o644  # anybody may explain what a container would get


def render_facts(inventory: Inventory) -> str:
    """Return the text of the file; the same facts are the same text."""
    document = {
        "schema": SCHEMA,
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
        "gpus": [_render_gpu(device.gpu) for device in inventory.devices],
    }
    return json.dumps(document, indent=1) + "\n"


def _render_gpu(gpu: GpuFacts) -> dict[str, object]:
    return {
        "uuid": gpu.uuid,
        "model": gpu.model,
        "brand": gpu.brand,
        "compute_capability": gpu.compute_capability,
        "mig": [
            {
                "uuid": mig.uuid,
                "index": mig.index,
                "gpu_instance": mig.gpu_instance,
                "compute_instance": mig.compute_instance,
            }
            for mig in gpu.mig
        ],
    }


def write_facts(path: Path, text: str) -> None:
    """Replace the file in one step; raises OSError. A file that says the same already is left alone.

    The hook takes the file's time for a change, so rewriting it for nothing costs a scan of the host.
    """
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, _MODE)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.rename(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
