"""Builds the environment of ansible-playbook: the user's own, plus what grapnel depends on. Pure.

A variable that the user set stays as it is; the exceptions are named in ``FIXED``: events come from one callback,
which replaces the user's, and what nodes answer must become neither variables nor a log of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER = "GRAPNEL_RUN"
CALLBACK = "grapnel_events"
CALLBACK_FOLDER = Path(__file__).parent / "callback_plugins"

FIXED = {
    "ANSIBLE_STDOUT_CALLBACK": CALLBACK,
    "ANSIBLE_NOCOWS": "true",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_RETRY_FILES_ENABLED": "false",
    # A result may carry facts of any name; as variables they would be in force for the tasks that follow.
    "ANSIBLE_INJECT_FACT_VARS": "false",
    "ANSIBLE_VERBOSITY": "0",  # from 1 on every answer is printed, with the configuration files in it
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


def callback_variables(user: Mapping[str, str]) -> dict[str, str]:
    """Return what makes Ansible write the events of a run, with the user's own callbacks beside that."""
    folders = [str(CALLBACK_FOLDER), user.get("ANSIBLE_CALLBACK_PLUGINS", "")]
    return {"ANSIBLE_STDOUT_CALLBACK": CALLBACK, "ANSIBLE_CALLBACK_PLUGINS": os.pathsep.join(filter(None, folders))}


def forced_by_ansible_runner(user: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that ansible-runner sets on its own and that must be taken away again.

    It turns host key checking off wherever the variable is not set, which would beat the user's ansible.cfg.
    """
    return () if "ANSIBLE_HOST_KEY_CHECKING" in user else ("ANSIBLE_HOST_KEY_CHECKING",)
