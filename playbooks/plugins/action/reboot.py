"""Reboots a node with Ansible's own action, and passes on only the parts of its answer that the roles use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleError

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import AnswerError, check_answer
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTION = "ansible.builtin.reboot"
_COMMAND = "/usr/bin/python3 -IS /usr/lib/grapnel/driver/grapnel-driver reboot"
_ARGUMENTS = {"timeout_s": {"type": "int", "default": 1500}}


class ActionModule(CheckedAction):
    RETURNS: ClassVar[Mapping[str, type]] = {"rebooted": bool, "elapsed": int}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Reboot the node and wait until it answers in another boot; raises AnsibleActionFail."""
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        task = self._task.copy()
        task.args = {"reboot_command": _COMMAND, "reboot_timeout": arguments["timeout_s"]}
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
