"""Reboots a node with Ansible's own action, and passes on only the parts of its answer that the roles use."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import AnswerError, check_answer
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTION = "ansible.builtin.reboot"
_LOOK = "grapnel.node.reboot"  # the module of the same name
_COMMAND = "/usr/lib/grapnel/driver/grapnel-driver reboot"
_ARGUMENTS = {"timeout_s": {"type": "int", "default": 1500}, "boot_id": {"type": "str", "default": ""}}
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}")
# In the same process as the reboot: between a look from here and the reboot, somebody else could have rebooted it.
_ONCE = (
    'read -r boot </proc/sys/kernel/random/boot_id; [ "$boot" = "$0" ] && exec systemctl --no-block reboot; '
    "echo 'it was rebooted just now' >&2; exit 1"
)


class ActionModule(CheckedAction):
    RETURNS: ClassVar[Mapping[str, type]] = {"rebooted": bool, "elapsed": int, "state": str}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Reboot the node and wait until it answers in another boot; raises AnsibleActionFail."""
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        timeout_s, boot = arguments["timeout_s"], arguments["boot_id"]
        if not boot:
            return self._reboot(_COMMAND, timeout_s, task_vars)
        if not _BOOT_ID.fullmatch(boot):
            raise AnsibleActionFail("boot_id is not the name of a boot")
        return self._reboot_once(boot, timeout_s, task_vars)

    def _reboot_once(self, boot: str, timeout_s: int, task_vars: dict[str, Any]) -> dict[str, Any]:
        before = self.execute(_LOOK, {"boot_id": boot}, task_vars)
        if before.get("failed") or before.get("rebooted") or self._task.check_mode:
            return before
        done = self._reboot(shlex.join(["/bin/sh", "-c", _ONCE, boot]), timeout_s, task_vars)
        if done.get("failed"):
            return done
        after = self.execute(_LOOK, {"boot_id": boot}, task_vars)
        if not after.get("failed") and not after.get("rebooted"):
            return {**after, "failed": True, "msg": "the node is still in the boot that was to end"}
        return {**done, **after, "changed": True}

    def _reboot(self, command: str, timeout_s: int, task_vars: dict[str, Any]) -> dict[str, Any]:
        task = self._task.copy()
        task.args = {"reboot_command": command, "reboot_timeout": timeout_s}
        action = self._shared_loader_obj.action_loader.get(
            _ACTION,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        try:
            answer = action.run(task_vars=task_vars)
            return check_answer({key: one for key, one in answer.items() if key in _RETURNED}, self.RETURNS)
        except AnsibleError:
            raise
        except AnswerError as error:
            raise AnsibleActionFail(f"the answer of {_ACTION} was refused: {error}") from None
        except Exception as error:  # noqa: BLE001 - what a node's answers do to whoever reads them
            raise AnsibleActionFail(f"{_ACTION} has failed ({type(error).__name__})") from None


_RETURNED = frozenset({*ActionModule.RETURNS, "changed", "failed", "msg"})
