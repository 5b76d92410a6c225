"""Packs a release into one file for one interpreter, when it is installed: what ``runtime_hook.packed`` reads.

The file stands beside the launcher and is named after the interpreter (``grapnel-hook.cpython-311``). Its head, as
long as ``HEAD_BYTES``, is a marshalled tuple: the magic number of the byte code, the importer's code, and the index;
behind it stands the code of each module. Whatever else Python starts the launcher with reads the sources as ever.
"""

from __future__ import annotations
import __future__

import marshal
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import MAGIC_NUMBER, find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_hook.packed import Place


HEAD_BYTES = 1 << 14
LAUNCHER = "grapnel-hook"
_PACKAGE = "runtime_hook"
_STARTED_BY_PATH = ("__main__.py", "launcher.py", "packed.py")
# Of the standard library, what the hook imports: modules in Python, and shared objects that need a search otherwise.
_PURE_MODULES = ("struct",)
_ANNOTATIONS = "from __future__ import annotations\n"
_SHARED_OBJECTS = ("_json", "_ctypes", "_socket", "_struct")


def find_release(program: str) -> str:
    """Return the folder of the release that a launcher belongs to, "" for anything else (a checkout)."""
    folder, name = os.path.split(os.path.realpath(program))
    return folder if name == LAUNCHER and os.path.isdir(f"{folder}/{_PACKAGE}") else ""


def pack_if_missing(program: str) -> None:
    """Pack a release that has no pack for this interpreter, where that is possible.

    The distribution's Python may have been replaced since the release was installed; /usr may be read-only.
    """
    folder = find_release(program)
    if not folder or os.path.exists(pack_path(folder)):
        return
    try:
        write_pack(folder)
    except OSError:
        return


def pack_path(folder: str) -> str:
    """Return where the pack of this interpreter belongs."""
    return f"{folder}/{LAUNCHER}.{sys.implementation.cache_tag}"


def write_pack(folder: str) -> str:
    """Pack the release in a folder for this interpreter, in one step; return the pack's path. OSError passes."""
    path = pack_path(folder)
    temporary = f"{path}.{os.getpid()}.new"
    try:
        with open(temporary, "xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(build_pack(folder))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        _remove(temporary)
        raise
    return path


def build_pack(folder: str) -> bytes:
    """Return the bytes of a pack."""
    index: dict[str, Place] = dict(_shared_objects())
    bodies = []
    offset = HEAD_BYTES
    for name, path in _modules(folder):
        body = _compile(path, os.path.relpath(path, folder) if path.startswith(folder) else path)
        index[name] = (offset, len(body), path.endswith("/__init__.py"))
        bodies.append(body)
        offset += len(body)
    importer = _compile(f"{folder}/{_PACKAGE}/packed.py", f"{_PACKAGE}/packed.py")
    head = marshal.dumps((MAGIC_NUMBER, importer, index))
    if len(head) > HEAD_BYTES:
        raise ValueError(f"the index of {folder} is longer than {HEAD_BYTES} bytes")
    return b"".join([head.ljust(HEAD_BYTES, b"\0"), *bodies])


def _compile(path: str, shown: str) -> bytes:
    """Compile without docstrings, and without importing ``__future__`` at each start, which makes ten features."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    flags = __future__.annotations.compiler_flag if _ANNOTATIONS in text else 0
    code = compile(text.replace(_ANNOTATIONS, "\n", 1), shown, "exec", flags, dont_inherit=True, optimize=2)
    return marshal.dumps(code)


def _modules(folder: str) -> Iterator[tuple[str, str]]:
    """Return name and path of everything that is packed."""
    for place, folders, names in os.walk(f"{folder}/{_PACKAGE}"):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(name for name in names if name.endswith(".py") and name not in _STARTED_BY_PATH):
            parts = os.path.relpath(f"{place}/{name}", folder)[: -len(".py")].split("/")
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), f"{place}/{name}"
    for name in _PURE_MODULES:
        found = find_spec(name)
        if found is not None and found.origin is not None and found.origin.endswith(".py"):
            yield name, found.origin


def _shared_objects() -> Iterator[tuple[str, str]]:
    for name in _SHARED_OBJECTS:
        found = find_spec(name)
        if found is not None and found.origin is not None and found.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            yield name, found.origin


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
