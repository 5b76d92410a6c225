"""Builds the driver's module for each kernel in a tree of its own, so that a node that is in use notices nothing.

dkms takes its tree and the tree of sources as options; the result is the archive that ``dkms ldtarball`` loads without
a compiler. Neither ``/var/lib/dkms`` nor ``/lib/modules`` is touched, but for the key: where dkms has none to sign with
it makes one, as it would when the package is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.record import store
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import failure
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import DriverChange
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.modules.module_sources import ModuleSources
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

_QUICK_S = 120.0
_SHOWN_LINES = 20
_LOG_BYTES = 64 * 1024 * 1024
# What the lines that say why look like, among thousands of a failed make.
_CAUSE = re.compile(r"\berror\b|undefined|No such file|No space|cannot|Killed|\*\*\*", re.IGNORECASE)


class Builder:
    """dkms in a scratch folder, for the sources of one module."""

    def __init__(self, host: Host, change: DriverChange, sources: ModuleSources, scratch: str) -> None:
        self._host, self._change, self._sources, self._scratch = host, change, sources, scratch
        for name in ("tree", "work"):
            host.path(f"{scratch}/{name}").mkdir(parents=True, exist_ok=True)
        self._run("add", [], _QUICK_S)

    def build(self, kernel: str, archive: str, timeout_s: float) -> None:
        """Build for a kernel and pack the result; raises `StageError` with the end of the compiler's log."""
        done = self._dkms("build", ["-k", kernel], timeout_s)
        if done.return_code:
            raise self._build_failure(kernel, done, timeout_s)
        self._run("mktarball", ["-k", kernel, "--binaries-only", "--archive", archive], _QUICK_S)

    def _run(self, action: str, options: list[str], timeout_s: float) -> None:
        done = self._dkms(action, options, timeout_s)
        if done.return_code:
            name = f"{self._sources.module}/{self._sources.version}"
            raise failure("build-failed", f"dkms {action} of {name}: {done.complaints}", "see what dkms says there")

    def _dkms(self, action: str, options: list[str], timeout_s: float) -> Finished:
        trees = ["--dkmstree", f"{self._scratch}/tree", "--sourcetree", self._sources.tree]
        module = ["-m", self._sources.module, "-v", self._sources.version]
        command = ["env", f"TMPDIR={self._scratch}/work", *self._key(), "dkms", action, *module, *trees, *options]
        return self._host.run(command, timeout_s)

    def _key(self) -> list[str]:
        """Return the variables that dkms signs by; its framework.conf wins, which is found out from the result."""
        sign = self._change.sign
        return [f"mok_signing_key={sign.key}", f"mok_certificate={sign.certificate}"] if sign else []

    def _build_failure(self, kernel: str, done: Finished, timeout_s: float) -> StageError:
        name = f"{self._sources.module}/{self._sources.version} for the kernel {kernel}"
        if done.is_timed_out:
            return failure(
                "build-timeout",
                f"dkms did not build {name} within {timeout_s:g} s",
                "hand over a module that was built elsewhere, or allow more time",
            )
        place = f"{self._scratch}/tree/{self._sources.module}/{self._sources.version}/build/make.log"
        log = self._host.read_text(place, _LOG_BYTES) or ""
        said = _end_of(log) or done.complaints
        if "No space left on device" in f"{log}{done.stderr}":
            return failure(
                "no-space",
                f"dkms cannot build {name}, the disk below {store.HOME} is full: {said}",
                "make room on that file system, then stage again",
            )
        return failure(
            "build-failed",
            f"dkms cannot build {name}: {said}",
            "a branch that does not know this kernel needs a newer one; otherwise the log names what is missing",
        )


def _end_of(log: str) -> str:
    """Return the first lines that name a cause and the last ones, each once."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.search(line)][: _SHOWN_LINES // 2]
    shown = dict.fromkeys([*causes, *lines[-_SHOWN_LINES // 2 :]])
    return " / ".join(printable(line, 300) for line in shown)
