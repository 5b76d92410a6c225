"""Checks rules across keys: what each key allows alone, but not together, and what is doubtful.

Judges an effective declaration: the file alone, or what the levels of the inventory add up to for one node. Pure; the
caller knows where each key was written.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from provision.spec.driver_rules import judge_driver
from provision.spec.gpu_settings_rules import judge_gpu_settings
from provision.spec.kueue_rules import judge_kueue
from provision.spec.mig_rules import judge_mig
from provision.spec.model import Engine, Entitlement
from provision.spec.node_rules import judge_node
from provision.spec.plugin_rules import judge_plugin
from provision.spec.remark import error, warning
from provision.spec.rollout_rules import judge_rollout
from provision.spec.scheduler_rules import judge_scheduler
from provision.spec.tenancy_rules import judge_tenancy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.spec.findings import KeyPath
    from provision.spec.model import StackSpec
    from provision.spec.remark import Remark


def judge(spec: StackSpec) -> list[Remark]:
    """Return every rule that the declaration does not keep, errors and warnings."""
    return list(
        chain(
            judge_driver(spec.driver),
            _runtime(spec),
            judge_plugin(spec.plugin),
            judge_mig(spec),
            judge_node(spec),
            judge_gpu_settings(spec),
            judge_rollout(spec.rollout),
            judge_scheduler(spec),
            judge_tenancy(spec),
            judge_kueue(spec.tenancy),
        )
    )


def _runtime(spec: StackSpec) -> Iterator[Remark]:
    """With `kubelet`, the device plugin decides who has a GPU; with `env`, the container's own environment does."""
    path: KeyPath = ("runtime", "entitlement")
    if spec.runtime.handler in spec.runtime.handler_aliases:
        index = spec.runtime.handler_aliases.index(spec.runtime.handler)
        message = f"'{spec.runtime.handler}' is the handler itself"
        yield error(("runtime", "handlerAliases", index), message, "list other names only")
    if not spec.runtime.enabled:
        if spec.plugin.enabled:
            hint = "enable the runtime, or declare plugin.enabled: false"
            yield warning(
                ("runtime", "enabled"), "pods are given GPUs by the plugin, and no driver libraries by the hook", hint
            )
        return
    by_kubelet = spec.runtime.entitlement is Entitlement.KUBELET
    if by_kubelet and spec.runtime.engine is Engine.PODMAN:
        yield error(path, "podman does not work with a kubelet", "write entitlement: env")
    elif by_kubelet and not spec.plugin.enabled:
        hint = "enable the plugin, or make sure that another device plugin allocates GPUs"
        yield warning(path, "grapnel allocates no GPUs while the plugin is disabled", hint)
    elif not by_kubelet and spec.plugin.enabled:
        hint = "write entitlement: kubelet where a kubelet runs, or plugin.enabled: false where none does"
        yield warning(path, "any image can take GPUs that the plugin gave to others", hint)
