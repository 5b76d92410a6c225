#!/usr/bin/python3
"""Changes the settings of a node's kubelet, and makes sure that it works with them."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kubelet
short_description: Change the kubelet's settings, or leave everything as it was
version_added: 0.1.0
description:
  - Has the kubelet validate its settings as they are to be, stops it, takes away what it keeps of CPUs and memory that
    it gave to containers, swaps the files in, starts it, and waits until it works and stays up.
  - A kubelet that does not come back gets its former files, and is started with them. That is a failure.
  - Containers go on while the kubelet is stopped. Those with CPUs of their own should have left the node before.
author:
  - The grapnel authors (@grapnel)
options:
  unit:
    description: The service that the kubelet runs in.
    type: str
    required: true
  root_dir:
    description: The kubelet's folder, in which it keeps its state.
    type: path
    default: /var/lib/kubelet
  health:
    description: Host and port at which the kubelet says whether it works, empty where it does not.
    type: str
    default: ""
  restart:
    description: Whether the kubelet has to restart. A restart that an interrupted run left due is done anyway.
    type: bool
    default: false
  timeout_s:
    description: Longest time in seconds that the kubelet may take to work after its start.
    type: int
    default: 120
  settle_s:
    description: How long in seconds it has to work on end, as it may notice late what it refuses.
    type: int
    default: 10
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
    description: The kubelet validates its settings as they would be, in check mode too.
    support: full
  diff_mode:
    description: Shows every file that changes; for one that not everybody may read, only that it changes.
    support: full
"""

EXAMPLES = r"""
- name: Give containers CPUs of their own
  grapnel.node.kubelet:
    unit: kubelet.service
    health: 127.0.0.1:10248
    restart: true
    files:
      - path: /etc/kubernetes/kubelet.conf.d/99-grapnel.conf
        content: |
          apiVersion: kubelet.config.k8s.io/v1beta1
          kind: KubeletConfiguration
          cpuManagerPolicy: static
          reservedSystemCPUs: 0-3
"""

RETURN = r"""
paths:
  description: Files that were changed.
  returned: success
  type: list
  elements: str
steps:
  description: What was done to the service.
  returned: success
  type: list
  elements: str
state_files:
  description: Files of the kubelet's state that were taken away.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import ConfigurationError, Service
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileSetError,
    describe,
    find_changes,
    parse_files,
    swap_in,
)
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import read_place, unit_state
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.rehearsal import rehearse
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.settings import (
    Kubelet,
    KubeletError,
    Waiting,
    apply_settings,
    pending_steps,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.quiet_module import QuietModule

_SERVICE = ("unit", "root_dir", "health", "restart", "timeout_s", "settle_s")


class Module(QuietModule):
    """Shows what is done to the service; texts of its files are not for everybody."""

    SHOWN = _SERVICE


def main() -> None:
    module = Module(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "root_dir": {"type": "path", "default": "/var/lib/kubelet"},
            "health": {"type": "str", "default": ""},
            "restart": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 120},
            "settle_s": {"type": "int", "default": 10},
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
    removed: list[str] = []
    try:
        Service(given["unit"], "", enabled=True, restart=False, timeout_s=1)  # refuses what is no name of a service
        kubelet = Kubelet(**{name: given[name] for name in ("unit", "root_dir", "health", "timeout_s", "settle_s")})
        changes = find_changes(host, parse_files(given["files"], given["absent"]))
        steps = pending_steps(host, kubelet, restart=given["restart"])
        place = read_place(host, unit_state(host, kubelet.unit).get("MainPID", ""))
        rehearse(host, place, changes, restarts=bool(steps))
        if steps and not module.check_mode:
            removed = apply_settings(host, kubelet, changes, Waiting())
        elif not module.check_mode:
            swap_in(host, changes)  # nothing that the kubelet reads
    except (OSError, ConfigurationError, FileSetError, KubeletError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(changes or steps),
        paths=[change.after.path for change in changes],
        steps=steps,
        state_files=removed,
        diff=describe(changes),
    )


if __name__ == "__main__":
    main()
