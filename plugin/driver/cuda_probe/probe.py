"""Allocates on one device, as a process of its own: `probe.py LIBRARY PARENT [version]`. Standard library alone.

The device is the one that CUDA_VISIBLE_DEVICES names. Out comes one line of JSON: `{}` when memory was allocated,
written, read back as it was and freed, else `{"call", "code", "name"}` of the call that failed, or `{"problem"}`.
With `version` nothing is initialized or opened, and out comes `{"version"}` as CUDA numbers it, 0 if it does not say.
It ends with its parent, whatever it hangs in that can be ended at all.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

_BYTES = 4 * 1024 * 1024
_PR_SET_PDEATHSIG = 1  # prctl(2)


class _CallError(Exception):
    def __init__(self, **answer: object) -> None:
        super().__init__()
        self.answer = answer


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, also when it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


class _Cuda:
    """Calls by name; raises _CallError with the result of one that fails."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise _CallError(problem=str(error)) from error

    def __call__(self, name: str, *arguments: object) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise _CallError(problem=f"the library has no {name}") from error
        code = function(*arguments)
        if code != 0:
            raise _CallError(call=name, code=code, name=self._name_of(code))

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        is_known = (
            hasattr(self._library, "cuGetErrorName") and self._library.cuGetErrorName(code, ctypes.byref(name)) == 0
        )
        return (name.value or b"").decode("ascii", "replace") if is_known else ""


def allocate(cuda: _Cuda) -> None:
    """Write to the memory of the first visible device and read it back; raises _CallError."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(_BYTES)
    written, found = os.urandom(4096) * (_BYTES // 4096), ctypes.create_string_buffer(_BYTES)
    cuda("cuInit", ctypes.c_uint(0))
    cuda("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    cuda("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    cuda("cuMemAlloc_v2", ctypes.byref(memory), size)
    cuda("cuMemcpyHtoD_v2", memory, written, size)
    cuda("cuMemcpyDtoH_v2", found, memory, size)
    cuda("cuMemFree_v2", memory)
    cuda("cuCtxDestroy_v2", context)
    if found.raw != written:
        raise _CallError(problem="memory reads back as something else than was written")


def read_version(cuda: _Cuda) -> int:
    """Return the version of CUDA that the library is for; 0 from one that does not say."""
    version = ctypes.c_int()
    try:
        cuda("cuDriverGetVersion", ctypes.byref(version))
    except _CallError:
        return 0
    return version.value


def main() -> None:
    """Run the process."""
    end_with_parent(int(sys.argv[2]))
    answer: dict[str, object] = {}
    try:
        cuda = _Cuda(sys.argv[1])
        if sys.argv[3:] == ["version"]:
            answer = {"version": read_version(cuda)}
        else:
            allocate(cuda)
    except _CallError as failed:
        answer = failed.answer
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # without the library's own clean-up, which can hang: the kernel takes everything back


if __name__ == "__main__":
    main()
