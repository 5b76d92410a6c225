"""Adds the hook to the ``config.json`` of a bundle, before a runtime reads it."""

from __future__ import annotations

import os
import stat

from runtime_hook.base.document import Document
from runtime_hook.base.errors import StateError
from runtime_hook.base.jsonfast import dumps_compact, loads
from runtime_hook.base.reading import read_regular
from runtime_hook.base.writing import replace_file
from runtime_hook.engines.entry import hook_entry
from runtime_hook.inputs.bundle import CONFIG_LIMIT_BYTES, HOOK_NAME, parse_container
from runtime_hook.inputs.config import CONFIG_PATH, load_config
from runtime_hook.request.claim import Nothing
from runtime_hook.request.entitlement import find_claim

_STAGES = ("prestart", "createRuntime")


def add_hook(path: str, hook_path: str, config_path: str = "", driver_root: str = "") -> bool:
    """Add the hook to a configuration file unless it has nothing to do; return whether it was added.

    A file that is not there is left to the runtime, whose message is the better one. The rest of the document is
    written as it was read. It comes last among the ``prestart`` hooks: an engine's own (networks) go first.
    """
    try:
        content = loads(read_regular(path, CONFIG_LIMIT_BYTES, StateError))
    except FileNotFoundError:
        return False
    except ValueError as reason:
        raise StateError(f"{path}: {reason}") from reason
    container = parse_container(content, os.path.dirname(path), path)
    config = load_config(config_path or CONFIG_PATH)
    claim = find_claim(container, config)  # before the node's rules: what they forbid is for the hook to say
    if isinstance(claim, Nothing) and not claim.is_traced:
        return False
    document = Document(content, path, StateError)
    hooks = document.child("hooks")
    stages = {stage: hooks.items(stage) for stage in _STAGES}
    if any(_is_ours(entry) for entries in stages.values() for entry in entries):
        return False
    options = (*(("--config", config_path) if config_path else ()), *(("--root", driver_root) if driver_root else ()))
    entry = hook_entry(hook_path, options, config.timeout_s)
    _write(path, {**document.content, "hooks": {**hooks.content, "prestart": [*stages["prestart"], entry]}})
    return True


def _is_ours(entry: object) -> bool:
    path = entry.get("path") if isinstance(entry, dict) else None
    return isinstance(path, str) and os.path.basename(path) == HOOK_NAME


def _write(path: str, content: dict[str, object]) -> None:
    replace_file(path, dumps_compact(content), StateError, stat.S_IMODE(os.stat(path).st_mode))
