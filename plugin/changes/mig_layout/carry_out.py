"""Carries out the steps of one GPU through the driver. Each step is one that may be repeated after a kill.

What is made is complete before anything else is begun, and what is destroyed is free. Not here: whether to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from plugin.base.errors import MigError
from plugin.changes.mig_layout.model import Act

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plugin.changes.mig_layout.model import Step
    from plugin.driver.mig_instances import CuttableGpu, InstanceProfile


class Cutter(Protocol):
    """What is asked of the driver: `plugin.driver.nvml.changes.mig_instances`. All of them raise MigError."""

    def read_gpus(self) -> tuple[CuttableGpu, ...]:
        """Return the GPUs, with the reason of one that does not answer."""

    def set_mode(self, uuid: str, *, is_on: bool) -> str:
        """Turn MIG mode on or off; returns why that waits for a reset, "" where it is in force."""

    def destroy(self, uuid: str, instance: int) -> None:
        """Destroy a GPU instance and its compute instances."""

    def create(self, uuid: str, profile: int, start: int, size: int) -> int:
        """Make a GPU instance at a place and return its number."""

    def add_compute(self, uuid: str, instance: int, slices: int) -> None:
        """Make a compute instance of so many slices in a GPU instance."""


def carry_out(
    steps: Sequence[Step], profiles: Sequence[InstanceProfile], cutter: Cutter, tell: Callable[[Step], None]
) -> str:
    """Do the steps of a GPU in order up to a change of its mode, and tell each one that is done.

    What follows such a change is planned again: the GPU may have been reset. Returns why the rest waits, "" where
    nothing keeps it; raises MigError at the first step that fails.
    """
    ids = {profile.name: profile.id for profile in profiles}
    for step in steps:
        if step.changes_mode:
            waits = cutter.set_mode(step.uuid, is_on=step.act is Act.MODE_ON)
            if waits:
                return f"mig mode waits for a reset of the gpu, or a reboot: {waits}"
            tell(step)
            return ""
        _cut(step, ids, cutter)
        tell(step)
    return ""


def _cut(step: Step, ids: dict[str, int], cutter: Cutter) -> None:
    instance = step.instance
    if instance is None:
        return
    number = instance.id
    if step.act is Act.DESTROY:
        cutter.destroy(step.uuid, number)
        return
    if step.act is Act.CREATE:
        if instance.profile not in ids:
            hint = "nvidia-smi mig -lgip lists the profiles"
            raise MigError(f"{step.uuid}: it has no mig profile {instance.profile}", hint)
        number = cutter.create(step.uuid, ids[instance.profile], instance.start, instance.size)
    for slices in step.compute:
        cutter.add_compute(step.uuid, number, slices)
