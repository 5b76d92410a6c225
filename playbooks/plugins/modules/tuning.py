#!/usr/bin/python3
"""Makes settings of a node's kernel, for now and for every boot."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: tuning
short_description: Make settings of the kernel, now and for every boot
version_added: 0.1.0
description:
  - Writes files of sysctl.d and of the boot loader, all or none, makes the settings of the running kernel that differ,
    and has the boot loader take in what the kernel is to be started with.
  - With O(is_booted), it only checks that the kernel was started so. It reboots nothing.
author:
  - The grapnel authors (@grapnel)
options:
  values:
    description: Settings of the running kernel, by the names of sysctl.d. Only those that grapnel makes are known.
    type: dict
    default: {}
  boot_loader:
    description: What tells the kernel its arguments, empty where they stay as they are.
    type: str
    choices: ["", grub, grubby]
    default: ""
  boot_arguments:
    description: Arguments that the kernel is to be started with.
    type: list
    elements: str
    default: []
  boot_former:
    description: Arguments that grapnel has set before.
    type: list
    elements: str
    default: []
  is_booted:
    description: Whether the node has rebooted for the arguments, so that the kernel must have been started with them.
    type: bool
    default: false
  absent:
    description: Files that are taken away, all or none, together with the change of the others.
    type: list
    elements: path
    default: []
  files:
    description: The files.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path on the node.
        type: path
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      mode:
        description: Permissions in four octal digits.
        type: str
        default: "0644"
      withheld:
        description: Whether the text is left out because this copy of the plan is for display. It is then refused.
        type: bool
        default: false
attributes:
  check_mode:
    description: Tells what would be done.
    support: full
  diff_mode:
    description: Shows every file that changes.
    support: full
"""

EXAMPLES = r"""
- name: Leave memory on the NUMA node where it is
  grapnel.node.tuning:
    values:
      kernel.numa_balancing: "0"
    files:
      - path: /etc/sysctl.d/90-grapnel.conf
        content: "kernel.numa_balancing = 0\n"
"""

RETURN = r"""
paths:
  description: Files that were changed.
  returned: success
  type: list
  elements: str
steps:
  description: What was set.
  returned: success
  type: list
  elements: str
"""

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileSetError,
    describe,
    find_changes,
    parse_files,
    swap_in,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.kernel_settings import (
    KernelError,
    differing,
    missing_arguments,
    set_values,
    tell_boot_loader,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.quiet_module import QuietModule

if TYPE_CHECKING:
    from collections.abc import Sequence


class Module(QuietModule):
    """Shows what is set; texts of files are not for everybody."""

    SHOWN = ("values", "boot_loader", "boot_arguments", "boot_former", "is_booted")


def require_arguments(host: Host, wanted: Sequence[str]) -> None:
    """Raise `KernelError` where the kernel was started without an argument."""
    missing = missing_arguments(host, wanted)
    if missing:
        raise KernelError(
            f"the node has rebooted, and its kernel was started without {' '.join(missing)}: does it start by the "
            "boot loader that was told?"
        )


def main() -> None:
    module = Module(
        argument_spec={
            "values": {"type": "dict", "default": {}},
            "boot_loader": {"type": "str", "default": "", "choices": ["", "grub", "grubby"]},
            "boot_arguments": {"type": "list", "elements": "str", "default": []},
            "boot_former": {"type": "list", "elements": "str", "default": []},
            "is_booted": {"type": "bool", "default": False},
            "absent": {"type": "list", "elements": "path", "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True},
                    "mode": {"type": "str", "default": "0644"},
                    "withheld": {"type": "bool", "default": False},
                },
            },
        },
        supports_check_mode=True,
    )
    host, given = Host(), module.params
    wanted, former = given["boot_arguments"], given["boot_former"]
    try:
        if given["is_booted"] and not module.check_mode:
            require_arguments(host, wanted)
        changes = find_changes(host, parse_files(given["files"], given["absent"]))
        values = differing(host, {name: str(value) for name, value in given["values"].items()})
        tells = bool(given["boot_loader"]) and not given["is_booted"]
        if not module.check_mode:
            swap_in(host, changes)
            set_values(host, values)
            if tells:
                tell_boot_loader(host, given["boot_loader"], wanted, former)
    except (OSError, FileSetError, KernelError) as error:
        module.fail_json(msg=str(error))
    steps = [f"{name} = {value}" for name, value in values.items()]
    steps += [f"kernel arguments: {' '.join(wanted) or 'none of grapnel'}"] if tells else []
    module.exit_json(
        changed=bool(changes or steps),
        paths=[change.after.path for change in changes],
        steps=steps,
        diff=describe(changes),
    )


if __name__ == "__main__":
    main()
