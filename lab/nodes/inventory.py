"""Renders a site as an ordinary Ansible inventory, in YAML."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.nodes.ssh import SshAccess

GROUP = "gpu_nodes"


def render_inventory(addresses: Mapping[str, str], access: SshAccess) -> str:
    """Return the inventory: group ``gpu_nodes``, hosts with their addresses, one set of connection variables."""
    lines = [f"{GROUP}:", "  hosts:" if addresses else "  hosts: {}"]
    for name, address in sorted(addresses.items()):
        lines += [f"    {name}:", f"      ansible_host: {address}"]
    variables = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(access.key),
        "ansible_ssh_args": shlex.join(["-F", "none", *access.options()]),
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    lines.append("  vars:")
    lines += [f"    {name}: {json.dumps(value)}" for name, value in variables.items()]
    return "\n".join(lines) + "\n"
