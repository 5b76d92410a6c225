"""What settings, patterns and shares come to on this node, together with `node.json`. Pure.

`node.json` comes after NVIDIA's sources and before our defaults: it is written for every node by the planner, and
whoever sets a flag, a variable or a file of NVIDIA's form beside it means that. What cannot be honoured is refused
here, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError
from plugin.devices.allocation.answer import AnswerForm, DeviceList, Imex
from plugin.devices.health.xid import plan_policy
from plugin.devices.mig import NONE
from plugin.devices.resources import MIG_PREFIX
from plugin.devices.sharing import ShareRule, Strategy
from plugin.settings.label_target import label_conflicts, label_warnings, plan_labels
from plugin.settings.model import DaemonSettings
from plugin.settings.node_config import IN_CLUSTER, LIMITS_REQUIRED, OVERUSE_EVICT
from plugin.settings.nvidia.kinds import show
from plugin.settings.nvidia.sharing import MPS, Sharing
from plugin.settings.nvidia.table import BY_NAME, NOTHING_TO_REQUIRE
from plugin.settings.nvidia.table import HINT as SETTINGS_HINT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plugin.devices.naming import NamePattern
    from plugin.settings.node_config import NodeConfig
    from plugin.settings.nvidia.document import FileSettings
    from plugin.settings.nvidia.merge import Effective

HINT = "leave it out for now: docs/migrate.md says what is honoured"
_SOCKET = PurePosixPath("device-plugins/kubelet.sock")
_SHARED = ".shared"
_CDI = {DeviceList.CDI_ANNOTATIONS, DeviceList.CDI_CRI}
_EXTRAS = {
    "flags.gdrcopyEnabled": "NVIDIA_GDRCOPY",
    "flags.gdsEnabled": "NVIDIA_GDS",
    "flags.mofedEnabled": "NVIDIA_MOFED",
}


@dataclass(frozen=True)
class Resolved:
    """The daemon's configuration, the keys of node.json that came from elsewhere, and what people should know."""

    config: NodeConfig
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()


def resolve(config: NodeConfig, settings: Mapping[str, Effective], file: FileSettings | None = None) -> Resolved:
    """Return the configuration that counts; a ConfigError lists everything that cannot be honoured."""
    patterns, migs, sharing = ((), (), Sharing()) if file is None else (file.gpus, file.migs, file.sharing)
    rules = (*_plan_shares(sharing), *config.memory_units)
    answers = replace(_answer_form(settings), is_memory_limited=config.memory_limits == LIMITS_REQUIRED)
    resources = [pattern.resource for pattern in patterns] or [config.resource]
    is_mig_offered = settings["flags.migStrategy"].value != NONE
    here = [rule for rule in rules if rule.resource in resources or (is_mig_offered and _is_of_mig(rule, migs))]
    wrong = (*_contradictions(rules), *_mps_of_mig(here, migs), *label_conflicts(config, settings), *_evictions(config))
    if wrong:
        raise ConfigError("; ".join(wrong), SETTINGS_HINT)
    problems = [*_unsupported(settings, answers)]
    places, origins, misplaced = _places(settings)
    problems += misplaced
    if problems:
        raise ConfigError("; ".join(problems), HINT)
    decided = DaemonSettings(
        patterns=patterns,
        mig_strategy=str(settings["flags.migStrategy"].value),
        mig_patterns=migs,
        shares=rules,
        mps_root=str(settings["flags.mpsRoot"].value or ""),
        is_packed=settings["flags.plugin.sharedDevicesAllocationPolicy"].value == "packed",
        answers=answers,
        ends_without_driver=bool(settings["flags.failOnInitError"].value),
        driver_root=_driver_root(settings),
        policy=plan_policy(*(_words(settings[name]) for name in ("disableHealthChecks", "enableHealthChecks"))),
        labels=plan_labels(config, settings),
    )
    about_answers = (*_nodes_of_nobody(settings, answers), *_names_for_the_engine(settings, answers))
    return Resolved(
        replace(config, settings=decided, **places),  # type: ignore[arg-type] # paths of fields that hold paths
        origins,
        (
            *_without_effect(settings),
            *_shares_of_nothing(rules, here),
            *label_warnings(config, settings),
            *about_answers,
        ),
    )


def _evictions(config: NodeConfig) -> Iterator[str]:
    """Yield what an eviction lacks: the API server keeps kubelets to their own pods, service accounts not."""
    if config.memory_overuse == OVERUSE_EVICT and config.kubernetes_api in {"", IN_CLUSTER}:
        api = f'kubernetesApi is "{config.kubernetes_api}"'
        yield f"memoryOveruse evicts, and {api}: it takes the kubelet's kubeconfig, for pods of this node alone"


def _words(effective: Effective) -> tuple[str, ...]:
    return tuple(map(str, effective.value)) if isinstance(effective.value, tuple) else ()


def _answer_form(settings: Mapping[str, Effective]) -> AnswerForm:
    words = settings["flags.plugin.deviceListStrategy"].value
    lists = tuple(DeviceList(word) for word in words) if isinstance(words, tuple) else ()
    has_nodes = settings["flags.plugin.passDeviceSpecs"].value
    return AnswerForm(
        lists=lists,
        by_index=settings["flags.plugin.deviceIDStrategy"].value == "index",
        has_nodes=not _CDI & set(lists) if has_nodes is None else bool(has_nodes),
        cdi_annotation_prefix=str(settings["flags.plugin.cdiAnnotationPrefix"].value),
        variables=tuple(variable for name, variable in _EXTRAS.items() if settings[name].value),
        imex=_imex(settings),
    )


def _imex(settings: Mapping[str, Effective]) -> Imex:
    """Without channels there is nothing to require, as in NVIDIA's."""
    channels = settings["imex.channelIDs"].value
    numbers = tuple(map(int, channels)) if isinstance(channels, tuple) else ()
    return Imex(numbers, bool(numbers and settings["imex.required"].value))


def _unsupported(settings: Mapping[str, Effective], answers: AnswerForm) -> Iterator[str]:
    discovery = settings["flags.deviceDiscoveryStrategy"]
    if discovery.value == "tegra":
        yield f"{discovery.origin}: deviceDiscoveryStrategy tegra is not supported: use auto or nvml"
    for name in _EXTRAS:
        if settings[name].value and answers.has_cdi:
            yield (
                f"{settings[name].origin}: {name.rpartition('.')[2]} together with a CDI strategy is not supported: "
                "no CDI file names such a device"
            )


def _is_of_mig(rule: ShareRule, patterns: tuple[NamePattern, ...]) -> bool:
    return rule.resource.startswith(MIG_PREFIX) or rule.resource in {pattern.resource for pattern in patterns}


def _mps_of_mig(rules: Sequence[ShareRule], patterns: tuple[NamePattern, ...]) -> Iterator[str]:
    for rule in rules:
        if rule.strategy is Strategy.MPS and _is_of_mig(rule, patterns):
            yield f"{rule.origin}: mps of {rule.resource}: MIG devices are not shared through MPS, use timeSlicing"


def _shares_of_nothing(rules: Sequence[ShareRule], here: Sequence[ShareRule]) -> Iterator[str]:
    for rule in rules:
        if rule not in here:
            yield f"{rule.origin}: {rule.describe()} change nothing: {rule.resource} is not offered here"


def _nodes_of_nobody(settings: Mapping[str, Effective], answers: AnswerForm) -> Iterator[str]:
    """NVIDIA's own examples say false, as its runtime adds device nodes; under Kubernetes our hook does not."""
    if not answers.has_nodes and not answers.has_cdi:
        origin = settings["flags.plugin.passDeviceSpecs"].origin
        yield f"{origin}: passDeviceSpecs false leaves device nodes to the runtime: grapnel's hook adds none"


def _without_effect(settings: Mapping[str, Effective]) -> Iterator[str]:
    for name, effective in settings.items():
        setting = BY_NAME[name]
        if setting.no_effect and effective.is_given and effective.value != setting.default:
            yield f"{effective.origin}: {name.rpartition('.')[2]} changes nothing: {setting.no_effect}"
    required = settings["imex.required"]
    if required.value and not settings["imex.channelIDs"].value:
        yield f"{required.origin}: required changes nothing: {NOTHING_TO_REQUIRE}"


def _names_for_the_engine(settings: Mapping[str, Effective], answers: AnswerForm) -> Iterator[str]:
    """With its default, containerd 1.7 starts a container without the devices that CDI names it, and says nothing."""
    if answers.has_cdi:
        origin = settings["flags.plugin.deviceListStrategy"].origin
        yield f"{origin}: containerd 1.7 ignores CDI names unless it has enable_cdi = true: see docs/hook/engines.md"


def _driver_root(settings: Mapping[str, Effective]) -> Path:
    for name in ("flags.plugin.containerDriverRoot", "flags.nvidiaDriverRoot"):
        if settings[name].value is not None:
            return Path(str(settings[name].value))
    return Path("/")


def _places(settings: Mapping[str, Effective]) -> tuple[dict[str, Path], dict[str, str], list[str]]:
    """Return fields of the configuration that a setting moves, by whom, and what cannot be moved."""
    fields: dict[str, Path] = {}
    origins: dict[str, str] = {}
    problems = []
    for name in ("flags.nvidiaDevRoot", "flags.nvidiaDriverRoot"):
        root = settings[name]
        if root.is_given and root.value is not None and "dev_root" not in fields:
            fields["dev_root"], origins["devRoot"] = Path(str(root.value)) / "dev", root.origin
    socket = settings["kubeletSocket"]
    if socket.is_given and socket.value is not None:
        path = Path(show(socket.value))
        if PurePosixPath(*path.parts[-2:]) != _SOCKET:
            problems.append(f"{socket.origin}: {path} must end in /{_SOCKET}: it is where a kubelet has its socket")
        fields["kubelet_root"], origins["kubeletRoot"] = path.parent.parent, socket.origin
    return fields, origins, problems


def _plan_shares(sharing: Sharing) -> tuple[ShareRule, ...]:
    """Return the rules of a file of NVIDIA's form."""
    return tuple(
        ShareRule(
            Strategy.MPS if strategy.name == MPS else Strategy.TIME_SLICING,
            share.resource,
            share.rename or (share.resource + _SHARED if strategy.rename_by_default else share.resource),
            replicas=share.replicas,
            chosen=share.devices,
            refuses_several=strategy.refuses_several,
            origin=share.origin,
        )
        for strategy in sharing.strategies
        for share in strategy.shares
    )


def _contradictions(rules: Sequence[ShareRule]) -> Iterator[str]:
    """Yield why rules cannot hold beside one another: a device is divided once, and a name means one thing."""
    for number, rule in enumerate(rules):
        for other in rules[:number]:
            if other.resource == rule.resource and _may_overlap(other, rule):
                yield (
                    f"{rule.origin}: {rule.resource} is divided into {rule.describe()}, and into {other.describe()} by "
                    f"{other.origin}: name other devices in each, or leave one out"
                )
            elif other.shown_as == rule.shown_as and other.strategy is not rule.strategy:
                yield (
                    f"{rule.origin}: {rule.shown_as} would be {rule.describe()} and, by {other.origin}, "
                    f"{other.describe()}: give one of them another name"
                )


def _may_overlap(one: ShareRule, other: ShareRule) -> bool:
    """Whether a device may be in both. Of a list beside a count that is not known before the devices are seen."""
    if isinstance(one.chosen, tuple) and isinstance(other.chosen, tuple):
        return not set(one.chosen).isdisjoint(other.chosen)
    return True
