"""Checks rules across keys: what each key allows alone, but not together, and what is doubtful.

Judges an effective declaration: the file alone, or what the levels of the inventory add up to for one node. Pure; the
caller knows where each key was written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.known_part import as_far_as_known
from provision.declaration.spec.model import DriverSource, Engine, EngineSource, Entitlement, StackSpec
from provision.declaration.spec.rules.driver import judge_driver
from provision.declaration.spec.rules.gpu_settings import judge_gpu_settings
from provision.declaration.spec.rules.kueue import judge_kueue
from provision.declaration.spec.rules.mig import judge_mig
from provision.declaration.spec.rules.node import judge_node
from provision.declaration.spec.rules.offers import judge_offers
from provision.declaration.spec.rules.plugin import judge_plugin
from provision.declaration.spec.rules.remark import Remark, error, warning
from provision.declaration.spec.rules.rollout.policy import judge_rollout
from provision.declaration.spec.rules.scheduler import judge_scheduler
from provision.declaration.spec.rules.tenancy import judge_tenancy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from provision.declaration.spec.model import Runtime
    from provision.declaration.spec.text.findings import KeyPath


def judge(spec: StackSpec) -> list[Remark]:
    """Return every rule that the declaration does not keep, errors and warnings.

    Of a spec that is known in part, those that can be judged by that.
    """
    return [remark for rule in _RULES for remark in as_far_as_known(partial(rule, spec))]


def judge_with_offers(spec: StackSpec) -> list[Remark]:
    """Return what `judge` does of a spec to which no inventory adds, and the amounts that its nodes do not offer."""
    return [*judge(spec), *as_far_as_known(lambda: judge_offers(spec.tenancy, [spec]))]


def _handlers(spec: StackSpec) -> Iterator[Remark]:
    if spec.runtime.handler in spec.runtime.handler_aliases:
        index = spec.runtime.handler_aliases.index(spec.runtime.handler)
        message = f"'{spec.runtime.handler}' is the handler itself"
        yield error(("runtime", "handlerAliases", index), message, "list other names only")


def _runtime(spec: StackSpec) -> Iterator[Remark]:
    """With `kubelet`, the device plugin decides who has a GPU; with `env`, the container's own environment does."""
    path: KeyPath = ("runtime", "entitlement")
    if not spec.runtime.enabled:
        if spec.plugin.enabled:
            hint = "enable the runtime, or declare plugin.enabled: false"
            yield warning(
                ("runtime", "enabled"), "pods are given GPUs by the plugin, and no driver libraries by the hook", hint
            )
        return
    by_kubelet = spec.runtime.entitlement is Entitlement.KUBELET
    if spec.plugin.enabled and spec.plugin.interface.has_claims and spec.runtime.engine is Engine.DOCKER:
        hint = "use containerd or CRI-O for these nodes, or write interface: devicePlugin"
        said = spec.plugin.interface.value
        yield error(("plugin", "interface"), f"{said} needs CDI devices, which no kubelet hands to Docker", hint)
    if by_kubelet and not spec.runtime.engine.works_with_kubelet:
        yield error(path, f"{spec.runtime.engine.value} does not work with a kubelet", "write entitlement: env")
    elif by_kubelet and not spec.plugin.enabled:
        hint = "enable the plugin, or make sure that another device plugin allocates GPUs"
        yield warning(path, "grapnel allocates no GPUs while the plugin is disabled", hint)
    elif not by_kubelet and spec.plugin.enabled:
        hint = "write entitlement: kubelet where a kubelet runs, or plugin.enabled: false where none does"
        yield warning(path, "any image can take GPUs that the plugin gave to others", hint)


def _engine_source(spec: StackSpec) -> Iterator[Remark]:
    """Nodes know the keys of their own distribution, and no others."""
    runtime = spec.runtime
    if runtime.enabled and runtime.hold and runtime.engine in _OF_NO_PACKAGE:
        hint = "leave the key out"
        yield warning(("runtime", "hold"), f"has no effect: grapnel knows no package of {runtime.engine.value}", hint)
    if not (runtime.enabled and runtime.install):
        if runtime.version is not None:
            hint = "leave the key out, or have grapnel install the engine"
            yield warning(("runtime", "version"), "has no effect while grapnel installs no engine", hint)
        return
    if runtime.source is EngineSource.DISTRIBUTION:
        if runtime.repository is not None:
            hint = "write source: docker or crio, or leave the key out"
            yield warning(("runtime", "repository"), "has no effect with source: distribution", hint)
        return
    engines, owner = _OF_SOURCE[runtime.source], runtime.source.owner
    if runtime.engine not in engines:
        hint = f"leave the key out, or write engine: {' or '.join(each.value for each in engines)}"
        yield error(("runtime", "source"), f"{owner}'s repository has no {runtime.engine.value}", hint)
    elif runtime.repository is None and not (spec.driver.enabled and spec.driver.source is DriverSource.BUNDLE):
        file = {EngineSource.DOCKER: "gpg", EngineSource.CRIO: "deb/Release.key"}[runtime.source]
        hint = f"write repository.key: the text of the file {file} beside {owner}'s packages, once you checked it"
        message = f"is required with source: {runtime.source.value}, for the key that signs its packages"
        yield error(("runtime", "repository"), message, hint)
    elif runtime.source is EngineSource.CRIO and runtime.version is None and not _names_url(runtime):
        message = "is required with CRI-O's own repository, which is another one for each minor version"
        yield error(("runtime", "version"), message, "write the version, or repository.url")


def _names_url(runtime: Runtime) -> bool:
    return runtime.repository is not None and runtime.repository.url is not None


_OF_SOURCE: Final = {
    EngineSource.DOCKER: (Engine.CONTAINERD, Engine.DOCKER),
    EngineSource.CRIO: (Engine.CRIO,),
}
_OF_NO_PACKAGE: Final = (Engine.K3S, Engine.RKE2, Engine.K0S, Engine.MICROK8S)
_RULES: Final[tuple[Callable[[StackSpec], Iterator[Remark]], ...]] = (
    lambda spec: judge_driver(spec.driver),
    _handlers,
    _runtime,
    _engine_source,
    lambda spec: judge_plugin(spec.plugin),
    judge_mig,
    judge_node,
    judge_gpu_settings,
    lambda spec: judge_rollout(spec.rollout),
    judge_scheduler,
    judge_tenancy,
    lambda spec: judge_kueue(spec.tenancy),
)
