"""Renders the kubelet's settings: as a file of its configuration folder, or into its own file where it has no folder.

Its own file is YAML that others wrote. Only lines of keys that are declared are exchanged, everything else keeps its
bytes, comments included. The result of several files is that of the kubelet: mappings are merged, everything else is
replaced, in the order of the names (RFC 7386; kubernetes.io, "Kubelet Configuration Directory Merging").
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.declaration.spec.text.document import read_document
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from provision.declaration.spec.model import Kubelet
    from provision.declaration.spec.text.document import Document

DROP_IN_NAME: Final = "99-grapnel.conf"
_HEAD: Final = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
_NOTHING: Final[tuple[object, ...]] = ({}, [], None)

Settings = dict[str, Any]


def declared_settings(kubelet: Kubelet) -> Settings:
    """Return what is declared, as the kubelet's configuration has it; empty where nothing is."""
    given = msgspec.json.decode(msgspec.json.encode(kubelet))
    return {key: value for key, value in given.items() if key != "unit" and value not in _NOTHING}


def render_drop_in(settings: Mapping[str, Any]) -> str:
    """Return the text of our file in the kubelet's folder: JSON, which is YAML."""
    return json.dumps({**_HEAD, **settings}, indent=2) + "\n"


def read_settings(text: str, path: str) -> Settings:
    """Return what a file of the kubelet says; raises `EngineConfigError` for one that is not understood."""
    document = _read(text, path)
    content = document.content
    if document.findings or not isinstance(content, dict):
        reason = document.findings[0].message if document.findings else "holds no mapping"
        where = str(document.findings[0].place) if document.findings else path
        raise EngineConfigError(f"{where}: {reason}", hint="the kubelet's configuration is one plain YAML mapping")
    return content


def merge_settings(files: Iterable[Mapping[str, Any]]) -> Settings:
    """Return what several files come to, the last one counting most."""
    merged: Settings = {}
    for each in files:
        merged = _merge(merged, each)
    return merged


def _merge(below: object, above: object) -> Any:
    if not isinstance(above, dict):
        return above
    merged = dict(below) if isinstance(below, dict) else {}
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def says(merged: object, wanted: object) -> bool:
    """Tell whether merged settings hold what is wanted; mappings may hold more."""
    if isinstance(wanted, dict):
        return isinstance(merged, dict) and all(says(merged.get(key), value) for key, value in wanted.items())
    return merged == wanted


def _read(text: str, path: str) -> Document:
    return read_document(text.encode("utf-8", "replace"), path)


class SettingsFile:
    """The kubelet's own file as lines, of which those of single keys can be exchanged."""

    def __init__(self, text: str, path: str) -> None:
        self.settings = read_settings(text, path)
        document = _read(text, path)
        self._lines = text.split("\n")
        places = [document.key_place((key,)) for key in self.settings]
        if document.lines != self._lines or any(place.column != 1 for place in places):
            hint = "give the kubelet a folder for settings beside it: --config-dir"
            raise EngineConfigError(
                f"{path} is not written as one key a line, so nothing can be added to it", hint=hint
            )
        self._starts = dict(zip(self.settings, (place.line - 1 for place in places), strict=True))

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join(self._lines)

    def lines_of(self, key: str) -> str | None:
        """Return the lines of a key as they are, None where it is not there."""
        if key not in self._starts:
            return None
        start, end = self._span(key)
        return "\n".join(self._lines[start:end])

    def _span(self, key: str) -> tuple[int, int]:
        start = self._starts[key]
        end = min((line for line in self._starts.values() if line > start), default=len(self._lines))
        while end > start + 1 and _is_between(self._lines[end - 1]):
            end -= 1
        return start, end


def _is_between(line: str) -> bool:
    return not line.strip() or line.startswith(("#", "..."))


def exchange_lines(text: str, path: str, lines: Mapping[str, str | None]) -> str:
    """Return a file with the lines of some keys exchanged; None takes a key out, one that is missing is added last."""
    for key, new in lines.items():
        file = SettingsFile(text, path)
        if file.lines_of(key) == new:
            continue
        text = _exchanged(file, key, new)
    return text


def _exchanged(file: SettingsFile, key: str, new: str | None) -> str:
    lines = file.text.split("\n")
    added = [] if new is None else new.split("\n")
    if file.lines_of(key) is not None:
        start, end = file._span(key)  # noqa: SLF001 - of the same module
        return "\n".join([*lines[:start], *added, *lines[end:]])
    at_end = lines[-1:] == [""]
    return "\n".join([*lines[:-1], *added, ""] if at_end else [*lines, *added])


def render_line(key: str, value: object) -> str:
    """Return the line of a key, its value in YAML's flow style."""
    return f"{key}: {json.dumps(value)}"
