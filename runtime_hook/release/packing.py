"""Packs a release into one file for one interpreter, when it is installed: what ``runtime_hook.release.packed`` reads.

The file stands beside the launcher and is named after the interpreter (``grapnel-hook.cpython-311``). Its head, as
long as ``HEAD_BYTES``, is a marshalled tuple: the magic number of the byte code, the importer's code, and the index;
behind it stand the bundles of modules. Any other Python reads the sources as ever.
"""

from __future__ import annotations
import __future__

import ast
import marshal
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.util import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from runtime_hook.release.packed import Place


HEAD_BYTES = 1 << 14
LAUNCHER = "grapnel-hook"
_PACKAGE = "runtime_hook"
# What is imported by name where it is first needed: by every container, and by one with a GPU.
_HOT_PATHS = (
    (f"{_PACKAGE}.cli", f"{_PACKAGE}.prestart"),
    (
        f"{_PACKAGE}.host.hosttree",
        f"{_PACKAGE}.host.store",
        f"{_PACKAGE}.request.grant",
        f"{_PACKAGE}.request.devicenodes",
        f"{_PACKAGE}.container.root",
        f"{_PACKAGE}.plan.planner",
        f"{_PACKAGE}.audit",
    ),
)
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
    sources = dict(_modules(folder))
    index: dict[str, Place] = dict(_shared_objects())
    bodies = []
    offset = HEAD_BYTES
    for bundle in _bundles(sources):
        parts = [(name, sources[name].endswith("/__init__.py"), _compile(sources[name], folder)) for name in bundle]
        body = marshal.dumps(parts)
        index.update(dict.fromkeys(bundle, (offset, len(body))))
        bodies.append(body)
        offset += len(body)
    importer = marshal.dumps(_compile(f"{folder}/{_PACKAGE}/release/packed.py", folder))
    head = marshal.dumps((MAGIC_NUMBER, importer, index))
    if len(head) > HEAD_BYTES:
        raise ValueError(f"the index of {folder} is longer than {HEAD_BYTES} bytes")
    return b"".join([head.ljust(HEAD_BYTES, b"\0"), *bodies])


def _compile(path: str, folder: str) -> CodeType:
    """Compile without docstrings, and without importing ``__future__`` at each start, which makes ten features."""
    text = _read(path)
    flags = __future__.annotations.compiler_flag if _ANNOTATIONS in text else 0
    shown = path[len(folder) + 1 :] if path.startswith(f"{folder}/") else path
    code: CodeType = compile(text.replace(_ANNOTATIONS, "\n", 1), shown, "exec", flags, dont_inherit=True, optimize=2)
    return code


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _bundles(sources: dict[str, str]) -> list[list[str]]:
    """Return the modules of each hot path together, each behind what it imports, and every other by itself."""
    bundles: list[list[str]] = []
    seen: set[str] = set()
    for roots in _HOT_PATHS:
        bundle: list[str] = []
        for root in roots:
            _collect(root, sources, seen, bundle)
        bundles.append(bundle)
    return [*bundles, *([name] for name in sources if name not in seen)]


def _collect(name: str, sources: dict[str, str], seen: set[str], bundle: list[str]) -> None:
    """Add a module to a bundle behind its package and what it imports when it is imported itself."""
    package = name.rpartition(".")[0]
    if package:
        _collect(package, sources, seen, bundle)
    if name not in sources or name in seen:
        return
    seen.add(name)
    for node in ast.parse(_read(sources[name])).body:
        if isinstance(node, ast.ImportFrom):
            for imported in node.names:
                _collect(f"{node.module}.{imported.name}", sources, seen, bundle)
        elif isinstance(node, ast.Import):
            for imported in node.names:
                _collect(imported.name, sources, seen, bundle)
    bundle.append(name)


def _modules(folder: str) -> Iterator[tuple[str, str]]:
    """Return name and path of everything that is packed."""
    for place, folders, names in os.walk(f"{folder}/{_PACKAGE}"):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(name for name in names if name.endswith(".py") and name not in _STARTED_BY_PATH):
            parts = os.path.relpath(f"{place}/{name}", folder)[: -len(".py")].split("/")
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), f"{place}/{name}"
    for name in _PURE_MODULES:
        found = PathFinder.find_spec(name)  # the interpreter's, not a pack's
        if found is not None and found.origin is not None and found.origin.endswith(".py"):
            yield name, found.origin


def _shared_objects() -> Iterator[tuple[str, str]]:
    for name in _SHARED_OBJECTS:
        found = PathFinder.find_spec(name)  # the interpreter's, not a pack's
        if found is not None and found.origin is not None and found.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            yield name, found.origin


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
