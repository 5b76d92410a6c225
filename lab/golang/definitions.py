"""Fetches the CustomResourceDefinitions that Kueue publishes in its Go module, for a real API server in tests.

``modules/kueue/VERSION`` holds a go.mod and a go.sum that pin the module by its hash, so that nothing but the module
proxy is needed, and nothing of it is committed here.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.golang.errors import GolangError
from lab.golang.programs import MODULES
from lab.golang.toolchain import environment, find_go
from lab.machine.command import run
from lab.machine.errors import CommandError
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable

KUEUE_VERSION: Final = "0.17.0"
_MODULE: Final = "sigs.k8s.io/kueue"
_BASES: Final = Path("config/components/crd/bases")
_TIMEOUT_S: Final = 600.0
_WAIT_S: Final = 900.0


def kueue_definitions(say: Callable[[str], None] = print) -> Path:
    """Return a folder with a file for each definition, from the cache or the module proxy. Raises GolangError."""
    home = MODULES / "kueue" / KUEUE_VERSION
    key = content_key(*((home / name).read_bytes() for name in ("go.mod", "go.sum")))
    folder = cache_dir() / "golang" / f"kueue-definitions-{KUEUE_VERSION}-{key}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / "kueue.lock", wait_s=_WAIT_S):
        if not folder.is_dir():
            say(f"fetching the definitions of Kueue {KUEUE_VERSION}")
            _fetch(home, folder)
    return folder


def _fetch(home: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".kueue-", dir=folder.parent) as scratch:
        for name in ("go.mod", "go.sum"):
            shutil.copy(home / name, scratch)
        command = [find_go(f"Kueue {KUEUE_VERSION}"), "-C", scratch, "mod", "download", "-json", _MODULE]
        try:
            answer = run(command, timeout_s=_TIMEOUT_S, env=environment()).stdout
        except CommandError as error:
            what = f"the module of Kueue {KUEUE_VERSION} cannot be downloaded (`go env GOPROXY` shows from where)"
            raise GolangError(what, hint=error.hint) from error
        found = sorted(Path(json.loads(answer)["Dir"], _BASES).glob("*.yaml"))
        if not found:
            raise GolangError(f"the module of Kueue {KUEUE_VERSION} has no definitions in {_BASES}")
        made = Path(scratch, "definitions")
        made.mkdir()
        for path in found:
            shutil.copyfile(path, made / path.name)
        made.rename(folder)
