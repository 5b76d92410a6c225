"""Turns YAML into JSON, as a process of its own: `yaml_process.py FOLDER-OF-YAML < in > out`.

Only here is PyYAML imported, so that the daemon never carries it (decision 0024). Out comes
`{"content": …, "lines": {path: line}}` or `{"error": …}`. YAML is read as NVIDIA's plugin reads it: 1.1, with anchors
and merge keys; a key that is given twice is an error.
"""

from __future__ import annotations

import json
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])

import yaml

_MAX_VALUES = 20_000  # an alias can stand for as many values again
_MAX_DEPTH = 32
_MAX_BITS = 96
_PLAIN = ("null", "bool", "int", "float", "str")


class _Loader(yaml.SafeLoader):
    """Refuses what is nested too deeply where it begins: the time to scan it grows with the square of its depth."""

    def fetch_flow_collection_start(self, token_class: Any) -> None:
        if self.flow_level > _MAX_DEPTH:
            raise yaml.YAMLError(f"line {self.line + 1}: nested too deeply")
        super().fetch_flow_collection_start(token_class)


class _Walk:
    """Goes through a tree of nodes; raises yaml.YAMLError."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._count = 0
        self.lines: dict[str, int] = {}

    def value(self, node: yaml.Node, path: str, depth: int = 0) -> object:
        self._count += 1
        if self._count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise yaml.YAMLError("too large or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth + 1)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(node.value)]
        is_plain = node.tag.rpartition(":")[2] in _PLAIN
        return self._plain(node) if is_plain and isinstance(node, yaml.ScalarNode) else node.value

    def _plain(self, node: yaml.ScalarNode) -> object:
        try:
            value: object = self._loader.construct_object(node)
        except ValueError as error:  # Python reads no whole number of more than 4,300 digits
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: not a value: {node.value[:64]}") from error
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: a number of {len(node.value)} digits")
        return value

    def _item(self, node: yaml.Node, path: str, depth: int) -> object:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path, depth)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, object]:
        own: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: a key must be a text")
            if key.value in own:
                raise yaml.YAMLError(f'line {key.start_mark.line + 1}: key "{key.value[:64]}" is given twice')
            own.add(key.value)
        self._loader.flatten_mapping(node)
        found = {}
        for key, item in node.value:
            here = f"{path}.{key.value}" if path else key.value
            self.lines[here] = key.start_mark.line + 1
            found[key.value] = self.value(item, here, depth)
        return found


def read(text: str) -> dict[str, object]:
    """Return the answer for one text."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        walk = _Walk(loader)
        return {"content": None if node is None else walk.value(node, ""), "lines": walk.lines}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return {"error": " ".join(str(error).split())[:512]}


if __name__ == "__main__":
    json.dump(read(sys.stdin.buffer.read().decode()), sys.stdout)
