"""A node daemon's half of memory limits in this process, and containers whose programs allocate memory of a GPU.

The daemon's parts are the real ones (admin socket, keeper, driver's thread, NVML's library of the laboratory); only the
kubelet's Allocate is told to them.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lab.nvml import install, install_cuda, models
from plugin.admin.server import AdminServer
from plugin.base.log import Logger
from plugin.devices.inventory import HostTree
from plugin.devices.observer import Observer, ObserverThread, Pace
from plugin.driver.nvml.loading.library import NvmlSource
from plugin.sharing.memory_limits.keeper import LimitKeeper
from plugin.sharing.memory_limits.ledger import MemoryLedger
from plugin.sharing.memory_limits.request import GivenMemory, render_annotation
from plugin.system.thread_calls import ThreadCalls
from tests.control_groups import hierarchy
from tests.runtime_hook.drivertree import uuid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nvml.machine import Machine
    from plugin.kubelet.pod_resources.attribution import DeviceAssignment
    from plugin.sharing.memory_limits.keeper import LimitedGroup
    from tests.runtime_hook.containers import Container

UNIT_BYTES = 1 << 20
POD = "0a1b2c3d-0000-4000-8000-00112233aabb"
SIMULATED = "/sim"
LIBRARIES = "usr/lib64"
# Allocates each number of MiB and prints CUDA's result; "enter" moves it into a group of its own below the container's;
# "wait" waits until there is a file `go` beside the library.
PROGRAM = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void enter(const char *root)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/below", root);
    int failed = mkdir(path, 0755);
    strcat(path, "/cgroup.procs");
    FILE *file = failed ? NULL : fopen(path, "w");
    printf("entered %d\n", file && fprintf(file, "%d", getpid()) > 0 && fclose(file) == 0);
}

int main(int argc, char **argv)
{
    void *cuda = dlopen("/sim/libcuda.so.1", RTLD_NOW), *context;
    if (!cuda)
        return puts(dlerror());
    int (*init)(unsigned) = dlsym(cuda, "cuInit"), (*create)(void **, unsigned, int) = dlsym(cuda, "cuCtxCreate_v2");
    int (*allocate)(uint64_t *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
    if (init(0) || create(&context, 0, 0))
        return puts("no context");
    for (int i = 1; i < argc; i++) {
        uint64_t pointer;
        if (strcmp(argv[i], "wait") == 0)
            while (access("/sim/go", F_OK))
                usleep(10000);
        else if (strncmp(argv[i], "enter=", 6) == 0)
            enter(argv[i] + 6);
        else
            printf("%s %d\n", argv[i], allocate(&pointer, strtoul(argv[i], NULL, 10) << 20));
        fflush(stdout);
    }
    return 0;
}
"""


def machine(**changes: Any) -> Machine:
    """Return a machine with the first GPU of the driver's tree, and a driver that has limits."""
    one = models.machine("a100-40gb", 1).with_gpu(0, uuid=uuid(0))
    return replace(one, **{"driver_version": "615.71.09", "cgroup_root": str(hierarchy()), **changes})


async def _no_assignments(_deadline_s: float) -> tuple[DeviceAssignment, ...]:
    return ()


@dataclass
class LimitingDaemon:
    """The daemon's half: answers on its socket as long as it runs."""

    keeper: LimitKeeper
    ledger: MemoryLedger
    policy: str
    loop: asyncio.AbstractEventLoop

    def allocate(self, units: int) -> str:
        """Give a container units of the first GPU's memory; returns the annotation."""
        self.ledger.allocated(tuple(f"{uuid(0)}/{number}" for number in range(units)))
        return render_annotation(GivenMemory({uuid(0): units * UNIT_BYTES}, self.policy == "required"))

    def read(self) -> tuple[tuple[LimitedGroup, Any], ...]:
        """Return what the driver says of the groups."""
        return asyncio.run_coroutine_threadsafe(self.keeper.read(), self.loop).result(20)


@contextmanager
def limiting_daemon(folder: Path, simulated: Machine, policy: str = "required") -> Iterator[LimitingDaemon]:
    """Run the daemon's half with its socket in `folder`/run and the driver below `folder`/driver."""
    root = hierarchy()
    assert root is not None
    install(folder / "driver" / LIBRARIES, "615.71.09", simulated)
    install_cuda(folder / "driver" / LIBRARIES, "615.71.09")
    thread = ObserverThread(lambda *_seen: None, lambda: None, lambda _error: None)
    thread.replace_observer(
        Observer(NvmlSource(folder / "driver"), HostTree(folder / "dev", folder / "sys"), Pace(60, 60))
    )
    thread.start()
    loop = asyncio.new_event_loop()
    ledger = MemoryLedger(_no_assignments, {uuid(0): UNIT_BYTES}.get)
    keeper = LimitKeeper(
        allocations=ledger, calls=ThreadCalls(thread.ask), policy=lambda: policy, logger=Logger(), root=root
    )
    server = AdminServer(folder / "run/node.sock", keeper.answer, Logger())
    loop.run_until_complete(server.start())
    running = threading.Thread(target=loop.run_forever)
    running.start()
    try:
        yield LimitingDaemon(keeper, ledger, policy, loop)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        running.join(10)
        loop.close()
        assert thread.stop(10)


def add_program(root: Path) -> None:
    """Compile the program that allocates into a container's root."""
    command = ["gcc", "-x", "c", "-o", str(root / "bin/allocate"), "-", "-ldl"]
    subprocess.run(command, input=PROGRAM, text=True, check=True)


def into_pod(container: Container, group: Path, libraries: Path, cgroups: str = "") -> Container:
    """Put a container where a kubelet would, with the driver's simulation in it.

    Its own group is to be seen at `cgroups`, or else where the machine has the hierarchy.
    """
    root = hierarchy()
    assert root is not None
    config = container.config()
    linux = config["linux"]
    linux["namespaces"].append({"type": "cgroup"})
    linux["cgroupsPath"] = f"/{group.relative_to(root)}/{container.name}"
    mounts = [
        *config["mounts"],
        {"destination": SIMULATED, "type": "bind", "source": str(libraries), "options": ["rbind", "ro"]},
        {"destination": cgroups or str(root), "type": "cgroup", "source": "cgroup", "options": ["rw"]},
    ]
    container.changes = {"linux": linux, "mounts": mounts}
    return container
