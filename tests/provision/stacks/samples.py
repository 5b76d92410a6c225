"""GpuStacks as a cluster has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from provision.controller.stacks.decode import read_selector
from provision.controller.stacks.model import Stack
from provision.declaration.spec.model import API_VERSION
from tests.provision.samples import make_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[3]
CRD: Final = ROOT / "deploy/crd/gpustacks.yaml"
CONTRACT: Final = ROOT / "docs/contracts/gpustack"
DRIVER: Final = {"version": "550.163.01"}


def document(name: str = "pool", spec: Mapping[str, Any] | None = None, **more: object) -> dict[str, Any]:
    """Return a GpuStack as its owner writes it; it selects the Nodes with its name in the label pool."""
    selector = {"matchLabels": {"pool": name}}
    return {
        "apiVersion": API_VERSION,
        "kind": "GpuStack",
        "metadata": {"name": name},
        "spec": {"nodeSelector": selector, "driver": DRIVER, **(spec or {}), **more},
    }


def stored(name: str = "pool", *, generation: int = 1, **spec: object) -> dict[str, Any]:
    """Return the same as the API server returns it."""
    found = document(name, spec)
    found["metadata"] |= {"uid": f"uid-{name}", "generation": generation}
    return found


def stack(name: str = "pool", *, selector: Mapping[str, Any] | None = None, **more: object) -> Stack:
    """Return a stack that was decoded."""
    chosen = read_selector(selector if selector is not None else {"matchLabels": {"pool": name}})
    given = {"uid": f"uid-{name}", "generation": 1, "spec": make_stack(), "selector": chosen, **more}
    return Stack(name=name, **given)


def samples(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the samples of the declaration's contract that are plain YAML with a spec, with a selector."""
    for path in sorted((CONTRACT / folder).glob("*.yaml")):
        try:
            found = yaml.safe_load(path.read_text())
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("spec"), dict):
            yield path.stem, found
