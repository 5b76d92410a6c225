#!/usr/bin/python3
"""Takes a node's GPUs out of service for a driver swap, verifies the driver, and resumes the GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: daemon
short_description: Have the node daemon release the GPUs, verify the driver, or offer the GPUs again
version_added: 0.1.0
description:
  - Calls C(grapnel-node) on the node and returns its answer.
  - A process that still holds a GPU after a release is a warning, not a failure; the caller decides. A failed check of
    O(verb=verify) is a failure that names it.
author:
  - The grapnel authors (@grapnel)
options:
  verb:
    description:
      - C(release) stops offering the GPUs and closes the driver, C(verify) compares driver and GPUs with
        O(expect), C(resume) offers the GPUs again. Each may be repeated.
      - C(offered) waits until the GPUs are offered to pods as the node's configuration says, and fails where they are
        not within O(timeout_s). It changes nothing.
      - C(compare) has the node look for drift again, which is not waited for.
      - C(unclaimed) waits until no claim is prepared, and fails with the names of those that are, since
        their pods end only while the daemon is there. It changes nothing, and needs no daemon.
    type: str
    required: true
    choices: [release, verify, resume, offered, compare, unclaimed]
  expect:
    description: What O(verb=verify) is to find, in the form of docs/contracts/expectation.
    type: dict
    default: {}
  timeout_s:
    description: Longest time in seconds that the daemon and the driver may take to answer.
    type: int
    default: 90
  wait_s:
    description:
      - How long in seconds O(verb=release) waits for processes that hold a GPU, and O(verb=unclaimed) for claims.
    type: int
    default: 0
  terminate:
    description:
      - Whether O(verb=release) ends processes that hold a GPU and run in somebody's login session. They are asked to
        end (SIGTERM), and killed after O(grace_s). Services, containers, pods and everything else are never ended.
    type: bool
    default: false
  grace_s:
    description: How long in seconds O(terminate) gives processes to end.
    type: int
    default: 20
  optional:
    description:
      - Whether a node without the daemon is accepted. It offers nothing, so a release only reports who holds a GPU,
        and only the kernel module is verified.
    type: bool
    default: false
  marked:
    description:
      - Whether O(verb=release) leaves a mark where it was the one to take the GPUs out of service, and O(verb=resume)
        gives back only with that mark. GPUs that somebody else took out of service then stay so.
    type: bool
    default: false
attributes:
  check_mode:
    description: Releases and resumes nothing, and reports who holds a GPU now. Verifying never changes anything.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Take the GPUs out of service
  grapnel.node.daemon:
    verb: release
  register: released

- name: Verify the driver
  grapnel.node.daemon:
    verb: verify
    expect:
      schema: grapnel.dev/expectation/v1alpha1
      driverVersion: 550.163.01
"""

RETURN = r"""
daemon:
  description: What C(grapnel-node VERB --json) prints. The driver's own services are left out of its holders.
  returned: always
  type: dict
held_by:
  description: Who holds a GPU, one line each.
  returned: success
  type: list
  elements: str
taken:
  description: Whether this release took the GPUs out of service; they were in service before.
  returned: success
  type: bool
ended:
  description: Processes that were ended for O(terminate), one line each.
  returned: success
  type: list
  elements: str
installed:
  description: Whether the node has the daemon.
  returned: always
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import (
    LAUNCHER,
    Call,
    DaemonError,
    call_daemon,
    failed_checks,
    inspect,
    is_installed,
    start_comparison,
    would_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.use.claims import ClaimsError, wait_for_claims
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders
from ansible_collections.grapnel.node.plugins.module_utils.use.end_processes import end_processes
from ansible_collections.grapnel.node.plugins.module_utils.use.modules import describe_holder

_VERBS = ["release", "verify", "resume", "offered", "compare", "unclaimed"]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "required": True, "choices": _VERBS},
            "expect": {"type": "dict", "default": {}},
            "timeout_s": {"type": "int", "default": 90},
            "wait_s": {"type": "int", "default": 0},
            "terminate": {"type": "bool", "default": False},
            "grace_s": {"type": "int", "default": 20},
            "optional": {"type": "bool", "default": False},
            "marked": {"type": "bool", "default": False},
        },
        required_if=[("verb", "verify", ["expect"])],
        supports_check_mode=True,
    )
    if module.params["verb"] in {"compare", "unclaimed"}:
        _look(module)
    given = {name: module.params[name] for name in ("verb", "timeout_s", "wait_s", "expect", "marked")}
    host, call, optional = Host(), Call(**given), module.params["optional"]
    installed = is_installed(host)
    if not installed and not optional:
        module.fail_json(
            msg=f"this node has no grapnel-node ({LAUNCHER}): nothing to {call.verb}; site.yml installs it",
            installed=False,
            daemon={},
        )
    changed = would_change(host, call)
    only_inspect = not installed or (module.check_mode and call.verb not in {"verify", "offered"})
    try:
        result = inspect(host, call) if only_inspect else call_daemon(host, call, Clock())
        ended = []
        if call.verb == "release" and module.params["terminate"] and not module.check_mode:
            grace_s = module.params["grace_s"]
            ended = end_processes(result.get("holders", []), lambda: read_device_holders(host), Clock(), grace_s)
            if ended:
                result = inspect(host, call) if only_inspect else call_daemon(host, call, Clock())
    except (OSError, DaemonError) as error:
        module.fail_json(msg=str(error), installed=installed, daemon={})
    held_by = [describe_holder(holder) for holder in result.get("holders", [])]
    failed = failed_checks(result) if call.verb == "verify" else []
    if failed:
        msg = f"the driver is not as expected: {'; '.join(failed)}"
        module.fail_json(msg=msg, installed=installed, daemon=result)
    taken = changed and call.verb == "release"
    module.exit_json(
        changed=changed or bool(ended), installed=installed, taken=taken, daemon=result, held_by=held_by, ended=ended
    )


def _look(module: AnsibleModule) -> None:
    """Do what asks nothing of the daemon, and end."""
    host = Host()
    try:
        if module.params["verb"] == "unclaimed":
            wait_for_claims(host, Clock(), module.params["wait_s"], "apply")
        elif not module.check_mode:
            start_comparison(host)
    except ClaimsError as error:
        module.fail_json(msg=str(error), installed=is_installed(host), daemon={})
    module.exit_json(installed=is_installed(host), taken=False, daemon={}, held_by=[], ended=[])


if __name__ == "__main__":
    main()
