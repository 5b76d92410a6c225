#!/usr/bin/python3
"""Takes grapnel's module into the node's SELinux policy, and labels what is grapnel's."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: selinux
short_description: Take grapnel's module into the SELinux policy, and label what it is about
version_added: 0.1.0
description:
  - Installs the policy module that lies in C(/etc/grapnel/selinux/grapnel.cil), if the policy has not the same already,
    and gives grapnel's files and the GPUs' device nodes the labels that the policy has for them.
  - No boolean of the machine is changed, and nobody else's file is labelled.
author:
  - The grapnel authors (@grapnel)
options:
  digest:
    description: SHA-256 of the module's text. A file with another text is not installed.
    type: str
    required: true
attributes:
  check_mode:
    description: Tells whether the policy would be changed.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Let containers use the GPUs that they are given
  grapnel.node.selinux:
    digest: "{{ lookup('file', 'grapnel.cil', rstrip=false) | hash('sha256') }}"
"""

RETURN = r"""
installed:
  description: Whether the policy was changed.
  returned: success
  type: bool
"""

import hashlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (
    MODULE_PATH,
    SelinuxError,
    install_module,
    read_selinux,
    restore_labels,
)


def bring(host: Host, digest: str, *, is_check: bool = False) -> bool:
    """Install the module where the policy has another one or none, and label; return whether it had.

    Raises `SelinuxError`, OSError.
    """
    is_due = read_selinux(host).get("module") != digest
    if is_check:
        return is_due
    if is_due:
        with host.open(MODULE_PATH) as stream:
            if hashlib.sha256(stream.read()).hexdigest() != digest:
                raise SelinuxError(
                    f"{MODULE_PATH} is not what was planned: somebody has changed it meanwhile; apply again"
                )
        install_module(host)
    restore_labels(host)
    return is_due


def main() -> None:
    module = AnsibleModule(argument_spec={"digest": {"type": "str", "required": True}}, supports_check_mode=True)
    installed = False
    try:
        installed = bring(Host(), module.params["digest"], is_check=module.check_mode)
    except (OSError, SelinuxError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=installed, installed=installed)


if __name__ == "__main__":
    main()
