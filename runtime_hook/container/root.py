"""Examines the root of a running container before a plan is made, and applies the plan to it."""

from __future__ import annotations

import os

from runtime_hook.container.injection import apply_plan, has_path
from runtime_hook.container.kernel import KernelSyscalls
from runtime_hook.container.libc import kill_after
from runtime_hook.loader.layout import COMPAT_FOLDER, choose_layout, with_compat
from runtime_hook.loader.platforms import this_platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from runtime_hook.base.deadline import Deadline
    from runtime_hook.container.injection import InjectionResult
    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.host.inventory import Inventory
    from runtime_hook.loader.layout import Layout


class ContainerRoot:
    """One container's root, by its init process and where the runtime has put it on the host."""

    def __init__(
        self, pid: int, rootfs: str, deadline: Deadline, driver_root: str = "/", mount_label: str = ""
    ) -> None:
        kill_after(deadline.last_s())
        self._syscalls = KernelSyscalls(pid, rootfs, driver_root, mount_label)
        self._deadline = deadline

    def find_layout(self, inventory: Inventory | None) -> Layout:
        """Return the layout; with an inventory, CUDA forward compatibility is compared with its driver."""
        self._deadline.hold()  # an expiry on the way back would leave us there
        try:
            self._syscalls.enter()
            layout = choose_layout(this_platform(), lambda path: has_path(self._syscalls, path))
            has_compat = inventory is not None and has_path(self._syscalls, COMPAT_FOLDER)
        finally:
            self._syscalls.leave()
            self._deadline.release()
        return self._with_compat(layout, inventory) if inventory is not None and has_compat else layout

    def _with_compat(self, layout: Layout, inventory: Inventory) -> Layout:
        from runtime_hook.container.compatfolder import ContainerFolder, examine_container
        from runtime_hook.loader.compat import HostDriver

        host = HostDriver(inventory.driver_version, inventory.cuda_version)
        folder = ContainerFolder(self._syscalls, self._deadline, COMPAT_FOLDER)
        return with_compat(layout, examine_container(folder, host, layout.platform))

    def apply(self, plan: Sequence[Operation]) -> InjectionResult:
        """Apply a plan: all of it, or nothing and InjectionError."""
        os.umask(0)  # only now: whatever is written on the host is nobody else's to change
        return apply_plan(plan, self._syscalls, self._deadline)
