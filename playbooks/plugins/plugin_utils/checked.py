"""Runs modules on nodes for the actions of this collection, and passes on only what was checked of their answers.

They run in the worker that Ansible forks for each task and host, so what they limit is that worker's.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.grapnel.node.plugins.plugin_utils.answer import AnswerError, check_answer
from ansible_collections.grapnel.node.plugins.plugin_utils.kept_modules import kept
from ansible_collections.grapnel.node.plugins.plugin_utils.quick_modules import quicken, read_at_once

MEMORY_BYTES = 384 * 1024 * 1024  # beyond what a worker has when it begins; a real node's facts need a tenth
_OURS = "grapnel.node."
# Prefixes of the variables of this collection. A fact of such a name would be used as a variable.
_OUR_NAMES = ("grapnel_", "apply_", "driver_", "runtime_", "tuning_", "kubelet_", "node_daemon_")

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckedAction(ActionBase):  # type: ignore[misc] # Ansible ships no types
    """Runs the module of the action's own name; ``RETURNS`` as `check_answer` takes them."""

    RETURNS: ClassVar[Mapping[str, type] | None] = {}
    _module: bytes | None = None  # that is about to be run

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the checked answer; a malformed one fails the task on this host alone."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        refuse_planted_facts(task_vars or {})
        limit_memory()
        answer = self.ask(task_vars or {})
        return {**result, **answer, **self.tell(answer)}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run the module with the task's arguments; raises AnsibleActionFail."""
        return self.execute(self._task.action, dict(self._task.args), task_vars)

    def execute(self, module: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Run a module and return its checked answer; raises AnsibleActionFail, and what a connection raises."""
        try:
            answer = self._execute_module(module_name=module, module_args=arguments, task_vars=task_vars)
            return check_answer(answer, self.RETURNS)
        except AnsibleConnectionFailure as error:
            # ssh ended before it took the module, and nobody read what it said: a command without input raises that.
            if isinstance(error.__cause__, OSError):
                self._low_level_execute_command("true", sudoable=False)
            raise
        except AnsibleError:
            raise
        except AnswerError as error:
            raise AnsibleActionFail(f"the answer of {module} was refused: {error}") from None
        except Exception as error:  # noqa: BLE001 - what an answer does to whoever reads it
            raise AnsibleActionFail(f"the answer of {module} cannot be read ({type(error).__name__})") from None
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)  # noqa: SLF001 - as Ansible's own actions do

    def _configure_module(self, module_name: str, *arguments: Any, **named: Any) -> Any:
        """Put a module together as Ansible does, at less cost; of one with another form nothing is known."""
        is_ours = module_name.startswith(_OURS)
        with kept(module_name.removeprefix(_OURS)) if is_ours else contextlib.nullcontext():
            built, *rest = super()._configure_module(module_name, *arguments, **named)
        if getattr(built, "module_style", "") != "new":
            return (built, *rest)
        built = replace(built, b_module_data=quicken(built.b_module_data, is_ours=is_ours))
        self._module = built.b_module_data
        return (built, *rest)

    def _low_level_execute_command(self, cmd: str, *arguments: Any, **named: Any) -> Any:
        """Run a command as Ansible does; the interpreter of a module that is piped into it reads that as a whole."""
        if named.get("in_data") is not None and named["in_data"] is self._module:
            cmd = read_at_once(cmd)
        return super()._low_level_execute_command(cmd, *arguments, **named)

    def tell(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return what the action adds of its own, such as warnings made from the checked answer."""
        return {}


def refuse_planted_facts(task_vars: Mapping[str, Any]) -> None:
    """Fail on a host whose facts have names of this collection's variables: nothing of ours returns any."""
    facts = task_vars.get("ansible_facts")
    planted = sorted(str(name) for name in facts or {} if str(name).startswith(_OUR_NAMES))
    if planted:
        raise AnsibleActionFail(
            f"facts of this host are named as variables of grapnel.node: {', '.join(planted)[:200]}. The "
            "collection sets none: find out who answers for this host, and clear Ansible's fact cache"
        )


def limit_memory(beyond_bytes: int = MEMORY_BYTES) -> None:
    """Limit this process to its present memory and ``beyond_bytes``, so that an endless answer ends here."""
    with open("/proc/self/statm", encoding="ascii") as statm:  # in a fork of a process with many threads
        data_bytes = int(statm.read().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = data_bytes + beyond_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
