"""The environment of ansible-playbook: the user's own, plus what grapnel depends on. Pure.

A variable that the user set stays as it is; the exceptions are named in ``FIXED``: events are read from the
output of one callback and would be lost with another.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MARKER = "GRAPNEL_RUN"

FIXED = {
    "ANSIBLE_STDOUT_CALLBACK": "default",  # ansible-runner's callback derives from this one
    "ANSIBLE_NOCOWS": "true",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    # ansible-runner empties results above 700 kB; the facts of a node with a full package list may be larger.
    "MAX_EVENT_RES": str(64 * 1024 * 1024),
}
DEFAULTS = {
    "ANSIBLE_PIPELINING": "true",  # saves a file transfer per task
    "ANSIBLE_DEPRECATION_WARNINGS": "false",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
    "ANSIBLE_LOCALHOST_WARNING": "false",
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",  # an unreadable inventory is an error, not an empty fleet
}


def build_environment(
    user: Mapping[str, str], request: Mapping[str, str], *, marker: str, executables: Path
) -> dict[str, str]:
    """Return the variables to set for one run.

    ``executables`` is the folder of ansible-playbook: grapnel may be called by its path from an environment
    that is not activated. ControlPersist is not touched: Ansible's default has it, and a user's ssh_args
    would be lost.
    """
    return {
        **{name: value for name, value in DEFAULTS.items() if name not in user},
        **request,
        **FIXED,
        MARKER: marker,
        "PATH": os.pathsep.join([str(executables), user.get("PATH", os.defpath)]),
    }


def forced_by_ansible_runner(user: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that ansible-runner sets on its own and that must be taken away again.

    It turns host key checking off wherever the variable is not set, which would beat the user's ansible.cfg.
    """
    return () if "ANSIBLE_HOST_KEY_CHECKING" in user else ("ANSIBLE_HOST_KEY_CHECKING",)
