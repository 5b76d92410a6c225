"""A process that uses the simulated library through nvidia-ml-py, one expression at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_CHILD = """
import json, sys
from pynvml import *

def gpu(index):
    return nvmlDeviceGetHandleByIndex(index)

kept = {}
for line in sys.stdin:
    try:
        answer = {"value": eval(line)}
    except NVMLError as error:
        answer = {"error": error.value}
    print(json.dumps(answer, default=str), flush=True)
"""


class Client:
    """Evaluates expressions over nvidia-ml-py's functions; `gpu(i)` is a handle, `kept` a dictionary that lasts."""

    def __init__(self, library: Path, *, state: Path | None = None) -> None:
        env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(library.parent)}
        if state:
            env["GPUSIM_STATE"] = str(state)
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.communicate(timeout=10)

    def send(self, expression: str) -> None:
        """Start evaluating, so that the test can do something meanwhile."""
        assert self._child.stdin
        self._child.stdin.write(expression + "\n")
        self._child.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Return {"value": …}, or {"error": NVML's code}."""
        assert self._child.stdout
        answer: dict[str, Any] = json.loads(self._child.stdout.readline())
        return answer

    def __call__(self, expression: str) -> Any:
        self.send(expression)
        answer = self.receive()
        assert "value" in answer, f"{expression} failed with {answer}"
        return answer["value"]

    def error(self, expression: str) -> int:
        """Return the NVML code with which the expression fails."""
        self.send(expression)
        code: int = self.receive()["error"]
        return code
