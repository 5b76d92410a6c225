"""Finds what a declaration says of the machine that runs grapnel, which in a cluster is the controller's pod. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from provision.controller.stacks.secret_hosts import FILES
from provision.declaration.spec.model import SchedulerKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Rollout, StackSpec

_SCHEDULERS: Final = frozenset({SchedulerKind.AUTO, SchedulerKind.KUBERNETES})


def local_keys(spec: StackSpec) -> Iterator[str]:
    """Yield every key that a cluster cannot have, with what to write instead."""
    repository, runfile, scheduler = spec.driver.repository, spec.driver.runfile, spec.scheduler
    if repository is not None and repository.folder is not None:
        yield "spec.driver.repository.folder: a bundle lies on an operator's machine (declare a repository's url)"
    if runfile is not None and runfile.path is not None:
        yield "spec.driver.runfile.path: the file lies on an operator's machine (declare its url)"
    if spec.mig.config_file is not None:
        yield "spec.mig.configFile: a file has no place in a cluster (write its layouts into spec.mig.config)"
    for index, source in enumerate(spec.plugin.device_classes):
        if isinstance(source, str) and source.endswith(".json"):
            yield f"spec.plugin.deviceClasses[{index}]: a file has no place in a cluster (write name and content)"
    if scheduler.kind not in _SCHEDULERS or scheduler.slurm is not None or scheduler.commands is not None:
        yield "spec.scheduler: nodes of other schedulers are upgraded by `grapnel apply` (leave it out)"
    yield from _groups(spec.rollout)
    yield from _files(spec.rollout)


def _groups(rollout: Rollout) -> Iterator[str]:
    for index, wave in enumerate(rollout.waves):
        if wave.groups:
            yield f"spec.rollout.waves[{index}].groups: a cluster has no groups of an inventory (list hosts, or a size)"
    for key, places in (("domains", rollout.domains), ("zones", rollout.zones)):
        if places is not None and places.groups:
            yield f"spec.rollout.{key}.groups: a cluster has no groups of an inventory (write nodeLabel)"


def _files(rollout: Rollout) -> Iterator[str]:
    """Yield files that whoever may write a GpuStack could have sent somewhere, such as the controller's own token."""
    named = [
        *((f"gates[{index}].tokenFile", each.token_file) for index, each in enumerate(rollout.gates)),
        *((f"gates[{index}].caFile", each.ca_file) for index, each in enumerate(rollout.gates)),
        *((f"notify[{index}].urlFile", each.url_file) for index, each in enumerate(rollout.notify)),
        *((f"notify[{index}].secretFile", each.secret_file) for index, each in enumerate(rollout.notify)),
    ]
    for key, path in named:
        if path is not None and (".." in path or not PurePosixPath(path).is_relative_to(FILES)):
            yield f"spec.rollout.{key}: {path} is not below {FILES} of the controller's pod (mount it there)"
