"""Renders grapnel's SELinux policy module: one type for the GPUs' device nodes, which containers may open.

The label by which an engine may start the hook: programs below /usr/lib are libraries to a policy by themselves. And a
type for the node daemon's socket, to which engines may connect, as the hook does in their domain, and containers not.

In CIL, which `semodule` takes as it is: no compiler, and none of the macros of a distribution's policy. What not every
policy has is optional, and is left out by `semodule` where it is not there.
"""

from __future__ import annotations

import re
from typing import Final

MODULE: Final = "grapnel"
MODULE_PATH: Final = "/etc/grapnel/selinux/grapnel.cil"  # a module is called as its file is
GPU_TYPE: Final = "grapnel_gpu_device_t"
# The regular expressions differ from those that policies have for /dev/nvidia.*, and are longer: so they win.
_NODES: Final = (
    "/dev/nvidia[0-9]+",
    "/dev/nvidia(ctl|-modeset|-uvm|-uvm-tools|-vgpu[0-9]+|-nvswitch[0-9]+|-nvswitchctl)",
    "/dev/nvidia-caps/nvidia-cap[0-9]+",
    "/dev/nvidia-caps-imex-channels/channel[0-9]+",
)
_PROGRAMS: Final = "/usr/lib/grapnel/releases/[^/]+/grapnel-[a-z-]+"
_SOCKET_TYPE: Final = "grapnel_socket_t"
_SOCKET: Final = "/run/grapnel/node\\.sock"
_SOCKET_MADE: Final = ".node.sock.new"  # as which the daemon makes it, and then renames it
# Domains of services that have none of their own, and what type /run/grapnel has there, by who made it.
_DAEMONS: Final = {"initrc_t": ("var_run_t", "initrc_runtime_t"), "unconfined_service_t": ("var_run_t",)}
_ENGINES: Final = ("container_engine_t", "container_runtime_t")
_OPEN: Final = "(chr_file (getattr read write open ioctl lock append map))"
# Who had these nodes by their former type: they keep them.
_FORMER: Final = ("xserver_t", "xdm_t", "svirt_t")


def names_node(path: str) -> bool:
    """Tell whether the module has a label for a device node."""
    return any(re.fullmatch(pattern, path) for pattern in _NODES)


def render_module() -> str:
    """Return the module's text."""
    labelled = [(daemon, folder) for daemon, folders in _DAEMONS.items() for folder in folders]
    asking = [(engine, daemon) for engine in _ENGINES for daemon in _DAEMONS]
    lines = [
        "; managed by grapnel: GPUs for containers (docs/security/selinux.md)",
        f"(type {GPU_TYPE})",
        f"(roletype object_r {GPU_TYPE})",
        f"(typeattributeset device_node ({GPU_TYPE}))",
        f"(optional grapnel_containers (allow container_domain {GPU_TYPE} {_OPEN}))",
        *(f"(optional grapnel_{domain} (allow {domain} {GPU_TYPE} {_OPEN}))" for domain in _FORMER),
        f"(type {_SOCKET_TYPE})",
        f"(roletype object_r {_SOCKET_TYPE})",
        f"(typeattributeset file_type ({_SOCKET_TYPE}))",
        f"(allow {_SOCKET_TYPE} tmpfs_t (filesystem (associate)))",
        *(
            f"(optional grapnel_{daemon}_{folder} "
            f'(typetransition {daemon} {folder} sock_file "{_SOCKET_MADE}" {_SOCKET_TYPE}))'
            for daemon, folder in labelled
        ),
        *(
            f"(optional grapnel_{engine}_{daemon} (allow {engine} {_SOCKET_TYPE} (sock_file (getattr write)))"
            f" (allow {engine} {daemon} (unix_stream_socket (connectto))))"
            for engine, daemon in asking
        ),
        # The C library asks how memory is accounted for, as often as it frees a large piece, and does without.
        "(optional grapnel_freed (dontaudit container_engine_t sysctl_vm_t (dir (search))))",
        f'(filecon "{_SOCKET}" socket (system_u object_r {_SOCKET_TYPE} ((s0) (s0))))',
        f'(filecon "{_PROGRAMS}" file (system_u object_r bin_t ((s0) (s0))))',
        *(f'(filecon "{path}" char (system_u object_r {GPU_TYPE} ((s0) (s0))))' for path in _NODES),
    ]
    return "\n".join(lines) + "\n"
