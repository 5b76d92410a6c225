"""Reads objects of Kubernetes as `kubectl get -o yaml` prints them, and values in ConfigMaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from provision.planning.gpu_operator.errors import OperatorObjectsError
from provision.planning.gpu_operator.model import OperatorObjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.planning.gpu_operator.model import Spec

MAX_BYTES: Final = 4 << 20
DRA_VALUES: Final = "values of NVIDIA's DRA driver"  # in the place of a kind: they are no object
_DRA_KEYS: Final = frozenset({"gpuResourcesEnabledOverride", "consumableShares", "kubeletPlugin", "nvidiaCDIHookPath"})
_GROUP: Final = "nvidia.com/"
_HINT: Final = "write them with: kubectl get clusterpolicies,nvidiadrivers -o yaml"


class _Loader(yaml.SafeLoader):
    """Plain values without aliases, which could make a small text a huge value."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types here
            raise yaml.composer.ComposerError(None, None, "aliases are not read", event.start_mark)
        found: yaml.Node | None = super().compose_node(parent, index)
        return found


def parse_objects(text: bytes, name: str) -> list[Mapping[str, Any]]:
    """Return every object of a text: of several documents, and of Lists. Raises OperatorObjectsError."""
    if len(text) > MAX_BYTES:
        raise OperatorObjectsError(f"{name} is larger than {MAX_BYTES >> 20} MiB", hint=_HINT)
    try:
        documents = list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        problem = getattr(error, "problem", None) or type(error).__name__
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        raise OperatorObjectsError(f"{place}: {problem}", hint=_HINT) from error
    found = list(_objects(documents))
    if not found:
        raise OperatorObjectsError(f"{name} has no object of Kubernetes", hint=_HINT)
    return found


def _objects(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for document in documents:
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from _objects(document["items"])
        elif isinstance(document, dict) and document.get("kind"):
            yield document
        elif isinstance(document, dict) and _is_of_dra_driver(document):
            yield {"kind": DRA_VALUES, "spec": document}


def _is_of_dra_driver(values: Mapping[str, Any]) -> bool:
    """Tell whether these are values of the chart of NVIDIA's DRA driver, by a key that the operator's has not."""
    resources = values.get("resources")
    parts = resources if isinstance(resources, dict) else {}
    return bool(_DRA_KEYS.intersection(values)) or not {"gpus", "computeDomains"}.isdisjoint(parts)


def parse_value(text: str) -> object:
    """Return the value of a text in a ConfigMap, None where it is no YAML."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def sort_objects(objects: Iterable[Mapping[str, Any]]) -> OperatorObjects:
    """Return the objects by their kind."""
    policies: list[tuple[str, Spec]] = []
    drivers: list[tuple[str, Spec]] = []
    config_maps: dict[str, Mapping[str, str]] = {}
    others: list[str] = []
    charts: list[Spec] = []
    for each in objects:
        kind, version = str(each.get("kind")), str(each.get("apiVersion", ""))
        metadata = each.get("metadata") if isinstance(each.get("metadata"), dict) else {}
        name = str((metadata or {}).get("name", ""))
        spec = each.get("spec") if isinstance(each.get("spec"), dict) else {}
        if kind == "ClusterPolicy" and version.startswith(_GROUP):
            policies.append((name, spec or {}))
        elif kind == "NVIDIADriver" and version.startswith(_GROUP):
            drivers.append((name, spec or {}))
        elif kind == DRA_VALUES:
            charts.append(spec or {})
        elif kind == "ConfigMap":
            data = each.get("data") or {}
            config_maps[name] = {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}
        else:
            others.append(f"{kind} {name}".strip())
    return OperatorObjects(policies=policies, drivers=drivers, config_maps=config_maps, others=others, charts=charts)
