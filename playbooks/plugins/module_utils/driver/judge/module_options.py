"""Tells whether a target gives the driver's module other parameters than those that it was loaded with.

The kernel gives a module its parameters when it loads it (modprobe.d(5)), and most of NVIDIA's cannot be changed, or
read, in ``/sys/module`` afterwards. The file that they were loaded from is what tells: a run unloads the module before
it writes that file. By the same rule the planner (``provision.planning.planner.drivers.kernel_module``) says that a
change reloads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import Target
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

OPTIONS_PATH = "/etc/modprobe.d/grapnel-nvidia.conf"
_NVIDIA = "nvidia"


def has_other_options(host: Host, target: Target) -> bool:
    """Tell whether the file of the target has other parameters than the one on the node."""
    wanted = _text_of(target)
    return wanted is not None and parse_options(wanted) != parse_options(host.read_text(OPTIONS_PATH) or "")


def parse_options(text: str) -> frozenset[str]:
    """Return the parameters that a file gives the driver's module, under whichever name distributions have it."""
    lines = (line.split() for line in text.splitlines())
    return frozenset(
        word
        for words in lines
        if words[:1] == ["options"] and words[1:2] and words[1].startswith(_NVIDIA)
        for word in words[2:]
    )


def _text_of(target: Target) -> str | None:
    """Return the text of the file as the target has it, "" for none; None where the target is not about it."""
    if target.is_way_back:
        former = next((file for file in target.former if file.path == OPTIONS_PATH), None)
        return None if former is None else (former.content or b"").decode(errors="replace")
    return next((file.content for file in target.change.files if file.path == OPTIONS_PATH), None)
