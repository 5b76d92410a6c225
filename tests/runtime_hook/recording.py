"""An in-memory container root behind the Syscalls interface: records every call, fails where a test wants it."""

from __future__ import annotations

import errno
import stat
from typing import TYPE_CHECKING, TypeVar

from runtime_hook.container.syscalls import KIND_FILE, FileStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_hook.loader.elf import ReadAt

T = TypeVar("T")
FILE, FOLDER, LINK, DEVICE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666


class RecordingSyscalls:
    """Folders are numbered by their path; ``fail_at`` is the number of the change that fails."""

    def __init__(self, fail_at: int = -1, error: int = errno.EROFS) -> None:
        self.modes: dict[str, int] = {"/": FOLDER, "/dev": FOLDER}
        self.contents: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.numbers: dict[str, tuple[int, int]] = {}
        self.mounts: dict[int, str] = {}
        self.rules: list[str] = []
        self.staged: dict[str, str] = {}
        self.calls: list[str] = []
        self.is_inside = False
        self.makes_nodes = True
        self._folders: list[str] = []
        self._fail_at = fail_at
        self._error = error

    def state(self) -> tuple[object, ...]:
        """Return everything that a container would notice."""
        mounts = sorted(self.mounts.values())
        files = dict(self.modes), dict(self.contents), dict(self.links), dict(self.numbers)
        return *files, mounts, list(self.rules)

    def add(self, path: str, mode: int, content: bytes = b"", target: str = "") -> None:
        self.modes[path] = mode
        self.contents[path] = content
        if target:
            self.links[path] = target

    def _change(self, call: str) -> None:
        self.calls.append(call)
        if len(self.calls) - 1 == self._fail_at:
            raise OSError(self._error, "told to fail")

    def _path(self, folder: int, name: str) -> str:
        return f"{self._folders[folder].rstrip('/')}/{name}"

    def enter(self) -> None:
        self.is_inside = True

    def leave(self) -> None:
        self.is_inside = False

    def stage_file(self, source: str, kind: str = KIND_FILE) -> None:
        assert not self.is_inside, "host files are cloned on the host's side"
        self.staged[source] = kind

    def stage_node(self, source: str, major: int, minor: int, mode: int) -> None:
        assert not self.is_inside, "host nodes are cloned on the host's side"
        assert (major, minor) != (0, 0)
        assert 0 < mode <= 0o666
        self.staged.add(source)

    def stage_device_rules(self) -> None:
        assert not self.is_inside, "the host's cgroups are looked up on the host's side"

    def open_folder(self, path: str) -> int:
        if path not in self.modes:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        if not stat.S_ISDIR(self.modes[path]):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        self._folders.append(path)
        return len(self._folders) - 1

    def open_device_folder(self, subfolder: str = "") -> int:
        return self.open_folder(f"/dev/{subfolder}".rstrip("/"))

    def make_folder(self, folder: int, name: str) -> None:
        self._change(f"mkdir {name}")
        self.modes[self._path(folder, name)] = FOLDER

    def remove_folder(self, folder: int, name: str) -> None:
        del self.modes[self._path(folder, name)]

    def lstat(self, folder: int, name: str) -> FileStatus | None:
        path = self._path(folder, name)
        return FileStatus(self.modes[path], *self.numbers.get(path, (0, 0))) if path in self.modes else None

    def attach_new(self, source: str, folder: int, name: str) -> int:
        if self._path(folder, name) in self.modes:
            raise FileExistsError(errno.EEXIST, "taken", name)
        handle = self.attach(source, folder, name)
        self.add(self._path(folder, name), FILE)
        return handle

    def remove_target(self, source: str, folder: int, name: str) -> None:
        assert source in self.staged
        self.remove(folder, name)

    def attach(self, source: str, folder: int, name: str) -> int:
        assert source in self.staged
        return self._mount(f"attach {name}", f"{source} on {self._path(folder, name)}")

    def mask_proc(self, target: str, shown: tuple[str, ...]) -> int:
        return self._mount(f"mask {target}", f"cover on {target} but {' '.join(shown)}")

    def _mount(self, call: str, mount: str) -> int:
        self._change(call)
        handle = 1000 + len(self.calls)
        self.mounts[handle] = mount
        return handle

    def detach(self, handle: int) -> None:
        del self.mounts[handle]

    def read_link(self, folder: int, name: str) -> str:
        return self.links[self._path(folder, name)]

    def make_link(self, folder: int, name: str, target: str) -> None:
        if self._path(folder, name) in self.modes:
            raise FileExistsError(errno.EEXIST, "taken", name)
        self.put_link(folder, name, target)

    def put_link(self, folder: int, name: str, target: str) -> None:
        self._change(f"link {name}")
        self.add(self._path(folder, name), LINK, target=target)

    def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
        content = self.contents[self._path(folder, name)]
        return content if len(content) <= limit_bytes else None

    def names(self, folder: int, limit: int) -> list[str] | None:
        start = self._path(folder, "")
        found = [path[len(start) :] for path in self.modes if path.startswith(start) and "/" not in path[len(start) :]]
        return found if len(found) <= limit else None

    def inspect_file(self, folder: int, name: str, parse: Callable[[ReadAt], T]) -> T:
        path = self._path(folder, name)
        if self.modes[path] != FILE:
            raise OSError(errno.EINVAL, "not a regular file", name)
        return parse(lambda length, offset: self.contents[path][offset : offset + length])

    def put_file(self, folder: int, name: str, data: bytes) -> None:
        self._change(f"write {name}")
        self.add(self._path(folder, name), FILE, data)

    def remove(self, folder: int, name: str) -> None:
        path = self._path(folder, name)
        for table in (self.modes, self.contents, self.links, self.numbers):
            table.pop(path, None)

    def make_node(self, folder: int, name: str, major: int, minor: int, mode: int) -> None:
        if self._path(folder, name) in self.modes:
            raise FileExistsError(errno.EEXIST, "taken", name)
        self._change(f"mknod {name}")
        self.add(self._path(folder, name), stat.S_IFCHR | mode)
        self.numbers[self._path(folder, name)] = (major, minor)

    def allow_devices(self, rules: tuple[str, ...]) -> None:
        self._change(f"allow {', '.join(rules)}")
        self.rules += rules

    def deny_devices(self, rules: tuple[str, ...]) -> None:
        for rule in rules:
            self.rules.remove(rule)
