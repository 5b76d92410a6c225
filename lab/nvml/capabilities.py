"""The files of /proc by which the driver numbers the capabilities of MIG instances, below another root.

The driver lists every instance that there can be: 15 GPU instances to a GPU, with eight compute instances each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GPU_INSTANCES, COMPUTE_INSTANCES = 15, 8
_FIRST = 3  # 1 is the right to configure MIG, 2 to monitor it


def minors(gpus: int) -> dict[str, int]:
    """Return the minors of all capabilities of so many GPUs, by the driver's names."""
    names = ["config", "monitor"]
    for gpu in range(gpus):
        for instance in range(GPU_INSTANCES):
            own = f"gpu{gpu}/gi{instance}"
            names += [f"{own}/access", *(f"{own}/ci{number}/access" for number in range(COMPUTE_INSTANCES))]
    return {name: number for number, name in enumerate(names, _FIRST - 2)}


def write(proc: Path, gpus: int, *, major: int = 507) -> None:
    """Write `driver/nvidia-caps/mig-minors` for so many GPUs, and `devices` with the major of capability nodes."""
    folder = proc / "driver/nvidia-caps"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {minor}\n" for name, minor in minors(gpus).items()]
    (folder / "mig-minors").write_text("".join(lines))
    (proc / "devices").write_text(f"Character devices:\n  1 mem\n195 nvidia\n{major} nvidia-caps\n\nBlock devices:\n")
