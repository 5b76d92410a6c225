#!/usr/bin/python3
"""Looks at a node before and after its reboot, for the action of the same name, which reboots it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: reboot
short_description: Reboot a node that is out of service, once, and wait until it is back
version_added: 0.1.0
description:
  - With O(boot_id), reboots the node only while it is in that boot. Whoever is cut short may ask again, and the node
    is not rebooted twice. It is refused while the GPUs are in service, a process holds one, or a driver change runs.
    Afterwards, systemd is waited for until the node has started up. Where the node has C(grapnel-driver), modules that
    were loaded are loaded again, and GPUs are cut by MIG as they were, as far as nothing else on the node does that.
  - Without it, runs C(grapnel-driver reboot). That program refuses to reboot a node whose driver change does not wait
    for a reboot, whose GPUs are in service, or one of whose GPUs a process holds. What remains of the driver change is
    done by M(grapnel.node.driver) afterwards.
  - Waiting is left to M(ansible.builtin.reboot). The node counts as rebooted once it answers with another boot id.
  - Everything else that runs on the node ends with the reboot, too.
author:
  - The grapnel authors (@grapnel)
options:
  boot_id:
    description: The boot that is to end, as C(/proc/sys/kernel/random/boot_id) names it.
    type: str
    default: ""
  timeout_s:
    description: How long in seconds the node may take to answer again.
    type: int
    default: 1500
attributes:
  check_mode:
    description: Reboots nothing.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Reboot a node for its driver
  grapnel.node.reboot:
  when: driver_result.reboot | length > 0

- name: Reboot a node, unless it was rebooted since it was last looked at
  grapnel.node.reboot:
    boot_id: 4f2a1c0e-6f0b-4b6e-9d0a-1f6f6c1b2a3d
"""

RETURN = r"""
rebooted:
  description: Whether the node has rebooted; with O(boot_id), whether it is in another boot.
  returned: always
  type: bool
elapsed:
  description: How long in seconds it took.
  returned: when it was rebooted now
  type: int
state:
  description: What systemd says of the node since its start.
  returned: with O(boot_id), when it is in another boot
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver import installed as driver_program
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.reboot_note import note, restore
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import StoreError
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.reboot import (
    is_driver_changing,
    read_boot,
    wait_until_started,
    why_not_reboot,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={"boot_id": {"type": "str", "default": ""}, "timeout_s": {"type": "int", "default": 1500}},
        supports_check_mode=True,
    )
    host, boot = Host(), module.params["boot_id"]
    if not boot:
        module.fail_json(msg="boot_id is missing: without it, the action does all of it", rebooted=False)
    try:
        answer = look(host, boot, writes=not module.check_mode)
    except (StoreError, OSError) as error:
        module.fail_json(msg=str(error), rebooted=False)
    module.exit_json(changed=False, **answer)


def look(host: Host, boot: str, *, writes: bool) -> dict[str, Any]:
    """Return whether the node has left that boot, and prepare that where it has not; raises StoreError, OSError."""
    has_program = driver_program.is_installed(host)
    if read_boot(host) != boot:
        state = wait_until_started(host)
        complaint = restore(host, boot) if has_program and writes else ""
        if complaint:
            raise StoreError(complaint)
        return {"rebooted": True, "state": state}
    if is_driver_changing(host):
        raise StoreError("not rebooted: a driver change runs on the node: wait for it to end")
    if obstacle := why_not_reboot(host):
        raise StoreError(f"not rebooted: {obstacle}")
    if has_program and writes:
        note(host, boot)
    return {"rebooted": False}


if __name__ == "__main__":
    main()
