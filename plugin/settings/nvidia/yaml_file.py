"""Reads a `version: v1` file: JSON here, YAML in a short-lived process of this interpreter (decision 0024)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from plugin.base.documents import parse_json
from plugin.base.errors import ConfigError, os_reason
from plugin.settings.nvidia.document import Document
from plugin.system.durable import read_bounded

_MAX_BYTES = 1024 * 1024  # what a ConfigMap may hold
_TIMEOUT_S = 10.0
_CHILD = Path(__file__).with_name("yaml_process.py")
_MAX_WORDS = 256


def read_document(path: Path) -> Document:
    """Return the file's content; raises ConfigError. What is JSON is not asked for twice: JSON is YAML."""
    text = _read(path)
    try:
        return Document(str(path), parse_json(text))
    except (ValueError, RecursionError):
        answer = _ask_child(text, str(path))
    if "error" in answer:
        raise ConfigError(f"{path}: not valid yaml: {answer['error']}", "the form is NVIDIA's: see docs/migrate.md")
    return Document(str(path), answer["content"], answer["lines"])


def _read(path: Path) -> str:
    try:
        content = read_bounded(path, _MAX_BYTES + 1)
    except OSError as error:
        hint = "it is named by --config-file, CONFIG_FILE or nvidiaConfigFile"
        raise ConfigError(f"{path}: {os_reason(error)}", hint) from error
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes", "is this the right file?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not utf-8 text", "is this the right file?") from error


def _ask_child(text: str, origin: str) -> dict[str, Any]:
    found = importlib.util.find_spec("yaml")  # looks for it, does not load it
    if found is None or found.origin is None:
        raise ConfigError(f"{origin}: yaml cannot be read: PyYAML is not installed", "write the file as json")
    command = [sys.executable, "-IS", str(_CHILD), str(Path(found.origin).parent.parent)]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=_TIMEOUT_S, env={}, check=True)
        answer = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        raise ConfigError(
            f"{origin}: yaml cannot be read: {words[-1][:_MAX_WORDS]}", "write the file as json"
        ) from error
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise ConfigError(f"{origin}: yaml cannot be read: {error}", "write the file as json") from error
    if not isinstance(answer, dict):
        raise ConfigError(f"{origin}: yaml cannot be read: no answer", "write the file as json")
    return answer
