"""Renders what the kernel is told about modules: modprobe.d(5), modules-load.d(5), and dracut.conf(5) for its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OPTIONS_PATH = "/etc/modprobe.d/grapnel-nvidia.conf"
LOAD_PATH = "/etc/modules-load.d/grapnel-nvidia.conf"
DRACUT_PATH = "/etc/dracut.conf.d/grapnel-nvidia.conf"
_HEAD = "# managed by grapnel: the next apply puts back what is changed here"


def render_options(modules: Collection[str], parameters: Mapping[str, int | str]) -> str:
    """Return the file that keeps nouveau away from the GPUs, and gives the driver its parameters.

    ``modules`` are the names under which modprobe knows the driver's module: options go with the name of the file, and
    Debian calls it ``nvidia-current``.
    """
    lines = [_HEAD, "blacklist nouveau", "options nouveau modeset=0"]
    words = " ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    if words:
        lines += [f"options {module} {words}" for module in sorted(modules)]
    return "\n".join([*lines, ""])


def parse_options(text: str) -> frozenset[str]:
    """Return the parameters that a file gives the driver's module, under whichever name distributions have it."""
    lines = (line.split() for line in text.splitlines())
    return frozenset(
        word
        for words in lines
        if words[:1] == ["options"] and words[1:2] and words[1].startswith("nvidia")
        for word in words[2:]
    )


def render_load(modules: Sequence[str]) -> str:
    """Return the list of modules that are loaded at boot."""
    return "\n".join([_HEAD, *modules, ""])


def render_dracut() -> str:
    """Return the file by which dracut puts the options into every initial RAM disk.

    By itself it does so with ``hostonly`` alone: others may have nouveau, and nothing that keeps it away.
    """
    return "\n".join([_HEAD, f'install_optional_items+=" {OPTIONS_PATH} "', ""])
