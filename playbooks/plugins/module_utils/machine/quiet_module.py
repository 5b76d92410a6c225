"""A module whose arguments, texts of files, appear neither in its result nor in the node's log."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.module_utils.basic import AnsibleModule


class QuietModule(AnsibleModule):  # type: ignore[misc] # Ansible ships no types
    """Shows the arguments named in ``SHOWN`` and no others."""

    SHOWN: ClassVar[tuple[str, ...]] = ()

    @property
    def no_log(self) -> bool:
        """Arguments are not for the log, whatever the task says."""
        return True

    @no_log.setter
    def no_log(self, value: bool) -> None:
        """Take what the controller says about the task, which makes no difference."""

    def exit_json(self, **result: Any) -> None:
        """Return a result."""
        super().exit_json(**result, invocation=self._invocation())

    def fail_json(self, msg: str, **result: Any) -> None:
        """Return a failure, one of the arguments' own check included."""
        super().fail_json(msg, **result, invocation=self._invocation())

    def _invocation(self) -> dict[str, Any]:
        return {"module_args": {name: self.params.get(name) for name in self.SHOWN}}
