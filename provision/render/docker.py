"""Docker's configuration: one runtime in ``/etc/docker/daemon.json``, and devices by name (CDI) where Docker has them.

Docker reads that file alone: no drop-ins, no includes. So it is edited as a tree, every key of somebody else's stays,
and a file that already says what is wanted stays as it is, byte by byte. The runtime is the wrapper that brings the
hook (``runtime_hook.engines.wrapper``).
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from provision.render.base_spec import HOOK_PATH
from provision.render.errors import EngineConfigError

MAIN_PATH = "/etc/docker/daemon.json"
WRAPPER_PATH = str(PurePosixPath(HOOK_PATH).with_name("grapnel-runtime"))
_FIRST_WITH_CDI = (25,)  # as a feature that has to be switched on; later releases have it on
_OTHER_INJECTORS = ("nvidia-container-runtime",)


def render_docker(*, main: str | None, handler: str, engine_version: str) -> str:
    """Return the file's text with our runtime in it; ``main`` is its present text (None: absent).

    Raises `EngineConfigError` when nothing should be touched: it is no JSON object, or the name is somebody else's.
    """
    tree = _parse(main)
    runtimes = _object(tree, "runtimes")
    _require_free(runtimes, handler)
    wanted = {**tree, "runtimes": {**runtimes, handler: {"path": WRAPPER_PATH}}}
    if _has_cdi(engine_version):
        wanted["features"] = {"cdi": True, **_object(tree, "features")}
    if main is not None and wanted == tree:
        return main
    return json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"


def _parse(main: str | None) -> dict[str, Any]:
    if main is None or not main.strip():
        return {}
    try:
        tree = json.loads(main)
    except ValueError as error:
        raise EngineConfigError(
            f"{MAIN_PATH} is not JSON: {error}", hint="put it right; dockerd does not start with it either"
        ) from error
    if not isinstance(tree, dict):
        raise EngineConfigError(f"{MAIN_PATH} is not a JSON object", hint="put it right")
    return tree


def _object(tree: dict[str, Any], key: str) -> dict[str, Any]:
    found = tree.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise EngineConfigError(f"{MAIN_PATH}: {key} is not an object", hint="put it right")
    return found


def _require_free(runtimes: dict[str, Any], handler: str) -> None:
    entry = runtimes.get(handler)
    if entry is None or (isinstance(entry, dict) and entry.get("path") == WRAPPER_PATH):
        return
    path = entry.get("path", "") if isinstance(entry, dict) else ""
    is_nvidias = PurePosixPath(str(path)).name in _OTHER_INJECTORS
    remedy = "uninstall NVIDIA's toolkit and remove the entry" if is_nvidias else "remove the entry"
    raise EngineConfigError(
        f"the runtime {handler!r} is in {MAIN_PATH} already, and was not made by grapnel",
        hint=f"{remedy}, or declare another runtime.handler",
    )


def _has_cdi(engine_version: str) -> bool:
    numbers = tuple(int(part) for part in engine_version.split(".") if part.isdigit())
    return numbers >= _FIRST_WITH_CDI
