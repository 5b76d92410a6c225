#!/usr/bin/python3
"""Changes the files that a service reads, all or none, and makes the service use them."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: configuration
short_description: Change the files of a service, or leave everything as it was
version_added: 0.1.0
description:
  - Writes a set of files, lets the container engine read its whole configuration before any of them is swapped in,
    restarts the service if asked to, and waits until it answers.
  - All files or none are swapped in. When the service does not come up, the files are put back and it is restarted with
    them.
  - containerd is asked which configuration it would use, before and after. A difference outside of grapnel's handler
    is a failure.
  - A link is followed only if it and every folder on the way to its target belong to root alone; otherwise it is a
    failure.
  - The text of a file that not everybody on the node may read is neither shown nor logged.
author:
  - The grapnel authors (@grapnel)
options:
  unit:
    description: The service that reads the files, empty when there is none.
    type: str
    required: true
  engine:
    description: Container engine that has to accept the files, empty when the service is not an engine.
    type: str
    choices: ["", containerd, crio, docker, podman, k3s, rke2, k0s, microk8s]
    default: ""
  enabled:
    description: Whether the service starts at boot and runs now.
    type: bool
    default: true
  restart:
    description: Whether the service has to restart. A restart that an interrupted run left due is done anyway.
    type: bool
    default: false
  reload:
    description: Whether the service is reloaded where it would be restarted.
    type: bool
    default: false
  timers:
    description: Timers that belong to the service, and are enabled and started with it, or disabled and stopped.
    type: list
    elements: str
    default: []
  timeout_s:
    description: Longest time in seconds that the service may take to answer after a start.
    type: int
    default: 60
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
  preconditions:
    description:
      - What has to be on the node for a file to be written. By the path of the file, the SHA-256 of other files by
        their paths, empty for one that must not exist. A file whose preconditions are not met is left as it is.
    type: dict
    default: {}
attributes:
  check_mode:
    description: The engine validates the configuration as it would be, in check mode too.
    support: full
  diff_mode:
    description: Shows every file that changes; for one that not everybody may read, only that it changes.
    support: full
"""

EXAMPLES = r"""
- name: Add a drop-in
  grapnel.node.configuration:
    unit: containerd.service
    engine: containerd
    restart: true
    files:
      - path: /etc/containerd/conf.d/99-nvidia.toml
        content: "version = 2\n"
"""

RETURN = r"""
paths:
  description: Files that were changed.
  returned: success
  type: list
  elements: str
steps:
  description: What systemctl was told.
  returned: success
  type: list
  elements: str
"""

from typing import ClassVar

from ansible_collections.grapnel.node.plugins.module_utils.engines.table import ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import (
    ConfigurationError,
    Service,
    apply_changes,
    pending_steps,
    rehearse,
    settle_timer,
)
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import (
    FileSetError,
    describe,
    find_changes,
    parse_files,
    with_preconditions_met,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.quiet_module import QuietModule

_SERVICE = ("unit", "engine", "enabled", "restart", "reload", "timeout_s")


class Module(QuietModule):
    SHOWN: ClassVar = _SERVICE


def main() -> None:
    module = Module(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "engine": {"type": "str", "default": "", "choices": ["", *ENGINES]},
            "enabled": {"type": "bool", "default": True},
            "restart": {"type": "bool", "default": False},
            "reload": {"type": "bool", "default": False},
            "timers": {"type": "list", "elements": "str", "default": []},
            "timeout_s": {"type": "int", "default": 60},
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
            "preconditions": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    host, paths = Host(), []
    try:
        service = Service(**{name: module.params[name] for name in _SERVICE}, timers=tuple(module.params["timers"]))
        files = with_preconditions_met(host, module.params["files"], module.params["preconditions"])
        changes = find_changes(host, parse_files(files, module.params["absent"]))
        paths = [change.after.path for change in changes]
        steps = pending_steps(host, service)
        rehearse(host, service, changes)
        if (changes or steps) and not module.check_mode:
            apply_changes(host, service, changes)
        if not module.check_mode:  # in which one that is still to be written has no unit
            steps += [step for timer in module.params["timers"] for step in settle_timer(host, service, timer)]
    except (OSError, ConfigurationError, FileSetError) as error:
        module.fail_json(msg=str(error), paths=paths)
    module.exit_json(changed=bool(changes or steps), paths=paths, steps=steps, diff=describe(changes))


if __name__ == "__main__":
    main()
