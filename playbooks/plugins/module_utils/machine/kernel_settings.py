"""Reads and changes settings of the running kernel, and what it is told when it boots.

The boot loader is told by its own means: on Debian and Ubuntu a file that `update-grub` reads, elsewhere `grubby`,
which changes the entries of the kernels that are there. What others have told it stays.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

# By the names that sysctl.d(5) has: what can be set while the kernel runs.
PLACES = {
    "kernel.numa_balancing": "/proc/sys/kernel/numa_balancing",
    "vm.nr_hugepages": "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
}
GRUB_CONFIG = "/boot/grub/grub.cfg"
_TUNED = "/etc/tuned/bootcmdline"
_TUNED_LINE = re.compile(r"^TUNED_BOOT_CMDLINE=(.*)$", re.MULTILINE)
_ENTRY = re.compile(r'^args="(.*)"$', re.MULTILINE)  # as grubby prints one
_POOLS = "/sys/kernel/mm/hugepages"
_POOL = re.compile(r"hugepages-([0-9]+)kB")
_ARGUMENTS = ("hugepagesz", "hugepages", "default_hugepagesz", "intel_iommu", "amd_iommu", "iommu", "iommu.passthrough")
_ARGUMENT = re.compile(r"[a-z0-9_.]{1,64}=[A-Za-z0-9_.,:-]{0,128}")
_RANGES = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?){0,1023}")
_MAX_NODE = 1023  # CONFIG_NODES_SHIFT is 10 at most
_UNITS = (("Gi", 1024 * 1024), ("Mi", 1024), ("Ki", 1))
_TIMEOUT_S = 120.0


class KernelError(Exception):
    """A setting could not be made; the message says which."""


def read_kernel(host: Host) -> dict[str, Any]:
    """Return the facts ``kernel``."""
    balancing = host.read_text(PLACES["kernel.numa_balancing"])
    nodes, with_cpus = _numbers(host, "online"), _numbers(host, "has_cpu")
    return {
        "numa_nodes": nodes,
        "numa_nodes_without_cpus": [each for each in nodes if each not in with_cpus] if with_cpus else [],
        "numa_balancing": int(balancing) if balancing and balancing in "0123" else None,
        "hugepages": dict(_pools(host)),
        "arguments": boot_arguments(host),
        "tuned_arguments": _tuned_arguments(host),
        "boot_loader": _boot_loader(host),
    }


def _numbers(host: Host, name: str) -> list[int]:
    """Return the NUMA nodes of a list like ``0,2-9`` (sysfs-devices-node)."""
    found = _RANGES.fullmatch(host.read_text(f"/sys/devices/system/node/{name}") or "")
    ranges = [part.split("-") for part in found[0].split(",")] if found else []
    numbers = {number for ends in ranges for number in range(int(ends[0]), min(int(ends[-1]), _MAX_NODE) + 1)}
    return sorted(numbers)


def boot_arguments(host: Host) -> list[str]:
    """Return the arguments that the kernel was started with, those that can be declared."""
    return _known(host.read_text("/proc/cmdline") or "")


def _tuned_arguments(host: Host) -> list[str]:
    """Return those that tuned adds; the last line counts, as in a shell."""
    lines = _TUNED_LINE.findall(host.read_text(_TUNED) or "")
    written = lines[-1] if lines else ""
    try:
        return _known(" ".join(shlex.split(written)))
    except ValueError:  # a quote without its end
        return _known(written.strip("\"'"))


def _known(text: str) -> list[str]:
    found = [word for word in text.split() if word.partition("=")[0] in _ARGUMENTS]
    return [word for word in found if _ARGUMENT.fullmatch(word)][:64]


def _pools(host: Host) -> list[tuple[str, int]]:
    found = []
    for name in host.names(_POOLS):
        size, count = _POOL.fullmatch(name), host.read_text(f"{_POOLS}/{name}/nr_hugepages") or ""
        if size and count.isdecimal():
            found.append((_size(int(size[1])), int(count)))
    return found


def _size(kib: int) -> str:
    name, unit = next((name, unit) for name, unit in _UNITS if kib % unit == 0)
    return f"{kib // unit}{name}"


def _boot_loader(host: Host) -> str:
    if host.find_command("update-grub") and host.path(GRUB_CONFIG).is_file():
        return "grub"
    return "grubby" if host.find_command("grubby") else ""


def differing(host: Host, values: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the kernel does not have; raises `KernelError` for one that it does not know."""
    found = {}
    for name, value in values.items():
        if name not in PLACES:
            raise KernelError(f"{name} is not a setting that grapnel makes")
        present = host.read_text(PLACES[name])
        if present is None:
            raise KernelError(f"this kernel has no {name} ({PLACES[name]})")
        if present != value:
            found[name] = value
    return found


def set_values(host: Host, values: Mapping[str, str]) -> None:
    """Make settings of the running kernel; raises `KernelError` where it does not take one as a whole."""
    for name, value in values.items():
        place = host.path(PLACES[name])
        try:
            place.write_text(f"{value}\n", encoding="ascii")
        except OSError as error:
            raise KernelError(f"{name} could not be set to {value}: {error.strerror or error}") from error
        present = host.read_text(PLACES[name])
        if present != value:
            raise KernelError(f"the kernel has set {name} to {present}, not {value}{_why(name)}")


def _why(name: str) -> str:
    if name != "vm.nr_hugepages":
        return ""
    return ": its memory is in pieces that are too small. `grapnel reboot` makes room: they are set aside at boot then"


def tell_boot_loader(host: Host, loader: str, wanted: Sequence[str], former: Sequence[str]) -> None:
    """Have the kernel started with ``wanted`` from the next boot on, and without ``former``.

    For grub, the file that says so has been written before. Raises `KernelError` where that does not come through.
    """
    if loader == "grub":
        _run(host, ["update-grub"])
        text = host.read_text(GRUB_CONFIG, 8 << 20) or ""
        if " ".join(wanted) not in text:
            raise KernelError(f"update-grub has not taken '{' '.join(wanted)}' into {GRUB_CONFIG}")
    elif loader == "grubby":
        gone = [argument for argument in former if argument not in wanted]
        if gone:
            _run(host, ["grubby", "--update-kernel=ALL", f"--remove-args={' '.join(gone)}"])
        if wanted:
            _run(host, ["grubby", "--update-kernel=ALL", f"--args={' '.join(wanted)}"])
        _require_entry(host, wanted, gone)
    else:
        raise KernelError(f"{loader or 'an unknown boot loader'} cannot be told how to start the kernel")


def _require_entry(host: Host, wanted: Sequence[str], gone: Sequence[str]) -> None:
    """Raise `KernelError` unless the entry that boots next says what grubby was told."""
    entry = _ENTRY.search(_run(host, ["grubby", "--info=DEFAULT"]))
    if entry is None:
        raise KernelError("grubby names no entry that boots next: choose one (`grubby --set-default=/boot/vmlinuz-…`)")
    words = entry.group(1).split()
    if missing := [each for each in wanted if each not in words]:
        raise KernelError(f"grubby has not taken '{' '.join(missing)}' into the entry that boots next")
    tuned = _tuned_arguments(host)  # which grubby shows too
    if left := [each for each in gone if each in words and each not in tuned]:
        raise KernelError(f"grubby has left '{' '.join(left)}' in the entry that boots next")


def missing_arguments(host: Host, wanted: Sequence[str]) -> list[str]:
    """Return the arguments that the running kernel was not started with."""
    present = boot_arguments(host)
    return [argument for argument in wanted if argument not in present]


def _run(host: Host, command: list[str]) -> str:
    done = host.run(command, _TIMEOUT_S)
    if done.return_code:
        raise KernelError(f"{command[0]} failed: {printable(done.complaints, 1000)}")
    return done.stdout
