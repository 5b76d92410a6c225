"""Renders Docker's configuration: one runtime in ``/etc/docker/daemon.json``, and CDI where Docker has it.

Docker reads that file alone: no drop-ins, no includes. So it is edited as a tree, every key of somebody else's stays,
and a file that already says what is wanted stays as it is, byte by byte. The runtime is the wrapper that brings the
hook (``runtime_hook.engines.wrapper``).
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from provision.planning.engines.containerd.base_spec import HOOK_PATH
from provision.planning.engines.files.engine_file import bom_of, parse_json, version_numbers
from provision.planning.engines.files.runtimes import is_injector
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.planning.engines.files.engine_file import Table

MAIN_PATH = "/etc/docker/daemon.json"
WRAPPER_PATH = str(PurePosixPath(HOOK_PATH).with_name("grapnel-runtime"))
_FIRST_WITH_CDI = (25,)  # as a feature that has to be switched on
_FIRST_WITH_CDI_ON = (28, 2)
_CDI_FOLDER = "/var/run/cdi"  # where the hook's file is
_CDI_FOLDERS_KEY = "cdi-spec-dirs"
_SHOW = "dockerd --validate"


def render_docker(*, main: str | None, handlers: Sequence[str], engine_version: str, adopt: bool = False) -> str:
    """Return the file's text with our runtime in it; ``main`` is its present text (None: absent).

    Raises `EngineConfigError` when nothing should be touched: it is no JSON object, or the name is somebody else's and
    not to be taken over (``adopt``).
    """
    tree = parse_json(MAIN_PATH, main or "", show=_SHOW)
    runtimes, features = _object(tree, "runtimes"), _object(tree, "features")
    for handler in () if adopt else handlers:
        _require_free(runtimes, handler)
    ours = {handler: {"path": WRAPPER_PATH} for handler in handlers}
    wanted = {**tree.values, "runtimes": {**runtimes.values, **ours}}
    if _FIRST_WITH_CDI <= version_numbers(engine_version) < _FIRST_WITH_CDI_ON:
        wanted["features"] = {"cdi": True, **features.values}
    if folders := tree.texts(_CDI_FOLDERS_KEY):
        wanted[_CDI_FOLDERS_KEY] = [*folders, *([] if {_CDI_FOLDER, "/run/cdi"} & {*folders} else [_CDI_FOLDER])]
    if main is not None and wanted == tree.values:
        return main
    return bom_of(main or "") + _dumps(wanted) + "\n"


def _dumps(wanted: dict[str, object]) -> str:
    text = json.dumps(wanted, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a pair of surrogates, which JSON can write and UTF-8 cannot
        return json.dumps(wanted, indent=2)
    return text


def _object(tree: Table, key: str) -> Table:
    """Return an object in the file, an empty one for null."""
    return tree.without(key).table(key) if tree.values.get(key) is None else tree.table(key)


def _require_free(runtimes: Table, handler: str) -> None:
    entry = runtimes.tables().get(handler)
    if entry is None or entry.text("path") == WRAPPER_PATH:
        return
    remedy = (
        "uninstall NVIDIA's toolkit and remove the entry" if is_injector([entry.text("path")]) else "remove the entry"
    )
    raise EngineConfigError(
        f"the runtime {handler!r} is already in {MAIN_PATH}, and grapnel did not create it",
        hint=f"{remedy}, declare runtime.adopt: true or another runtime.handler: docs/migrate.md has the ways",
    )
