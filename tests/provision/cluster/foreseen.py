"""Tells how a Node differs from what it was before, in the words in which a plan shows steps."""

from __future__ import annotations

from typing import Any, Final

Step = tuple[str, str]
_OF_THE_SERVER: Final = frozenset({"resourceVersion", "managedFields", "generation"})
_MARKS: Final = {"labels": "label", "annotations": "annotation"}


def steps_between(before: dict[str, Any], after: dict[str, Any]) -> set[Step]:
    """Return what has changed of a Node; what no plan has words for is told by its field."""
    steps: set[Step] = set()
    for field, word in _MARKS.items():
        old, new = (each["metadata"].get(field, {}) for each in (before, after))
        steps |= {
            ("write" if key in new else "remove", f"{word} {key}")
            for key in old.keys() | new.keys()
            if old.get(key) != new.get(key)
        }
    name = f"Node {after['metadata']['name']}"
    cordons = [bool(each["spec"].get("unschedulable")) for each in (before, after)]
    if cordons[0] != cordons[1]:
        steps.add(("cordon" if cordons[1] else "uncordon", name))
    old_taints, new_taints = (_taints(each) for each in (before, after))
    steps |= {("write" if key in new_taints else "remove", f"taint {key}") for key in old_taints ^ new_taints}
    return steps | {("change", field) for field in _rest(before).items() ^ _rest(after).items()}


def _taints(node: dict[str, Any]) -> set[str]:
    """Return the taints but that of Kubernetes' own that comes and goes with the cordon."""
    return {each["key"] for each in node["spec"].get("taints") or () if "node.kubernetes.io/" not in each["key"]}


def _rest(node: dict[str, Any]) -> dict[str, str]:
    """Return every other field of a Node, as text."""
    meta = {key: value for key, value in node["metadata"].items() if key not in _OF_THE_SERVER | _MARKS.keys()}
    spec = {key: value for key, value in node["spec"].items() if key not in {"unschedulable", "taints"}}
    return {"metadata": repr(meta), "spec": repr(spec), "status": repr(node.get("status"))}
