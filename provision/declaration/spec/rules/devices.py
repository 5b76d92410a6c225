"""Checks files of device classes: each by itself, and those of one node side by side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model.device_class import Unit
from provision.declaration.spec.rules.remark import error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.declaration.spec.model.device_class import DeviceClassFile
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

# What the daemon fills in by itself (`docs/contracts/device-class`).
BUILT_IN: Final = frozenset(
    {"address", "card", "instance", "iommu_group", "issm", "name", "netdev", "rdma", "render", "umad", "uverbs"}
)
_GAP: Final = re.compile(r"\{([^{}]*)\}")
_LONGEST: Final = 63


def judge_class(described: DeviceClassFile) -> Iterator[Remark]:
    """Yield what is wrong with one file; paths are those of the file."""
    yield from _judge_unit(described)
    yield from _judge_variables(described)
    if described.match is None and (_gaps(described) or described.health):
        hint = "write match, or leave variables and health out"
        yield error(("match",), "is missing, so no variable has a value and nothing has a health", hint)


def _judge_unit(described: DeviceClassFile) -> Iterator[Remark]:
    unit = described.unit
    is_count = isinstance(unit, Unit) and unit.count is not None
    if isinstance(unit, Unit) and (unit.count is None) == (unit.shares_per_device is None):
        yield error(("unit",), "should have one of count and sharesPerDevice", "keep one of them")
    elif described.match is None and not is_count:
        yield error(("unit",), "without a match there is no device to count", 'write "unit": {"count": N}')
    elif is_count and _GAP.search(described.resource):
        message = "has variables, so devices have several resources, and a count would be of all of them"
        yield error(("resource",), message, "leave the variables out, or count devices")
    if len(_GAP.sub("x", described.resource)) > _LONGEST:
        yield error(("resource",), f"is longer than {_LONGEST} characters", "choose a shorter name")
    if described.resource.partition("/")[0].endswith("kubernetes.io"):
        yield error(("resource",), "kubernetes.io is reserved for Kubernetes itself", "use a domain of your own")


def _judge_variables(described: DeviceClassFile) -> Iterator[Remark]:
    for name, variable in described.variables.items():
        if name in BUILT_IN:
            yield error(("variables", name), f"{{{name}}} is one of the built-in ones", "choose another name")
        elif (variable.content is None) == (variable.name is None):
            yield error(("variables", name), "should have one of content and name", "keep one of them")
    known = BUILT_IN | described.variables.keys()
    for path, template in _templates(described):
        for name in _GAP.findall(template):
            if name not in known:
                yield error(path, f"there is no variable {{{name}}}", f"there are {', '.join(sorted(known))}")
        rest = _GAP.sub("", template)
        if "{" in rest or "}" in rest:
            yield error(path, "has a '{' or '}' that belongs to no variable", "a variable is written {name}")


def _templates(described: DeviceClassFile) -> Iterator[tuple[KeyPath, str]]:
    yield ("resource",), described.resource
    for index, node in enumerate(described.nodes):
        yield ("nodes", index, "path"), node.path
    for name, value in described.environment.items():
        yield ("environment", name), value
    for index, mount in enumerate(described.mounts):
        yield ("mounts", index, "hostPath"), mount.host_path
        if mount.container_path is not None:
            yield ("mounts", index, "containerPath"), mount.container_path


def _gaps(described: DeviceClassFile) -> bool:
    return any(_GAP.search(template) for _, template in _templates(described))


def judge_together(classes: Mapping[KeyPath, tuple[str, DeviceClassFile]], of_gpus: str) -> Iterator[Remark]:
    """Yield what classes of one node cannot have in common; `of_gpus` is the resource of its GPUs."""
    owners = {of_gpus: "the node's GPUs are offered as"}
    for path, (name, described) in classes.items():
        if described.resource in owners:
            message = f"{described.resource} is what {owners[described.resource]}"
            yield error(path, message, f"give {name} another resource, or leave it out")
        owners.setdefault(described.resource, f"{name} offers")
