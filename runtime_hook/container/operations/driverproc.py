"""Hides from ``/proc/driver/nvidia`` what does not belong to the container's own GPUs."""

from __future__ import annotations

from runtime_hook.base.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.syscalls import Syscalls

DRIVER_PROC = "/proc/driver/nvidia"


@value
class MaskDriverProc:
    """Cover the driver's folder in the container's ``/proc`` and show only ``shown`` (paths below it) in it.

    As NVIDIA's libnvidia-container does it (``src/nvc_mount.c``): a tmpfs with copies of ``params``, ``version`` and
    ``registry``, the selected GPUs' folders and MIG ``access`` files bound read-only. In ``params`` the driver's
    libraries are told not to make device nodes themselves. A container whose ``/proc`` has no such folder (no driver
    loaded, no procfs, ``subset=pid``) has nothing to hide.
    """

    shown: tuple[str, ...]
    target: str = DRIVER_PROC
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"mask {self.target}, but for {', '.join(self.shown) or 'nothing'}"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host: what is shown is the container's own procfs."""

    def apply(self, syscalls: Syscalls) -> str:
        """Cover the folder where there is one."""
        syscalls.mask_proc(self.target, self.shown)
        return ""
