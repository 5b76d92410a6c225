"""Makes GpuStacks of what the GPU operator was told, and says of every key what becomes of it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.planning.draft.model import Said, stack_of
from provision.planning.gpu_operator.carried import CARRIERS, REASONS, is_of_k3s_or_rke2
from provision.planning.gpu_operator.config_maps import device_plugin, mig_layouts, module_parameters
from provision.planning.gpu_operator.errors import OperatorObjectsError
from provision.planning.gpu_operator.model import Conversion, DraftedStack, Key, OperatorObjects, Verdict
from provision.planning.gpu_operator.verdicts import ENGINE_IS_SAID, K3S_OR_RKE2, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from provision.planning.gpu_operator.config_maps import Carried
    from provision.planning.gpu_operator.model import Spec

DRA_DRIVER: Final = "values of NVIDIA's DRA driver"
LABEL: Final = "grapnel.dev/stack"  # of Nodes: people set it, one node after the other, when the operator has left it
NO_VALUE: Final = "grapnel has no such value for it: declare one that means the same"
NO_VERSION: Final = (
    "the operator's own default counts: declare driver.version; what Nodes have now is in their label "
    "nvidia.com/cuda.driver-version.full"
)
NO_SOURCE: Final = (
    "the operator's image brings its driver along: say where packages come from (the distribution, unless you do)"
)
_ABOUT_CRD: Final = "the operator takes it from NVIDIADriver objects"
_SANDBOX: Final = ("vgpuManager", "vgpuDeviceManager", "vfioManager", "sandboxDevicePlugin", "ccManager", "kata")
_CHOOSING: Final = {"devicePlugin": "entry", "migManager": "layout"}
_FROM_ITSELF: Final = frozenset({"enabled", "useNvidiaDriverCRD", "upgradePolicy", "manager"})
_OF_TYPE_GPU: Final = frozenset({"", "gpu", None})


def convert(objects: OperatorObjects, parse: Callable[[str], object]) -> Conversion:
    """Return the stacks: one of the ClusterPolicy, or one of each NVIDIADriver where these say which driver there is.

    With the values of NVIDIA's DRA driver GPUs are given by claims; they may stand alone. ``parse`` reads a text in a
    ConfigMap. Raises OperatorObjectsError where there is not exactly one ClusterPolicy, and no values alone.
    """
    if not objects.policies and objects.charts:
        return _of_charts(objects, parse)
    if len(objects.policies) != 1:
        many = f"{len(objects.policies)} ClusterPolicies" if objects.policies else "no ClusterPolicy"
        raise OperatorObjectsError(f"there is {many}, and the operator follows one", hint="name the object that counts")
    name, policy = objects.policies[0]
    shared = _Reading(f"ClusterPolicy {name}", objects, parse)
    uses_crd = bool(_at(policy, "driver", "useNvidiaDriverCRD"))
    shared.read(policy, skips=_skips(policy, uses_crd=uses_crd))
    of_charts = _read_charts(objects, parse)
    shared.said |= of_charts.said
    shared.keys += of_charts.keys
    if not uses_crd:
        stack = DraftedStack(name=_dns_label(name), labels={}, said=_ordered(shared.said))
        why = f"ClusterPolicy {name} does not use NVIDIADriver objects"
        unused = [
            Key(source=f"NVIDIADriver {each}", path="spec", value="…", verdict=Verdict.IDLE, why=why)
            for each, _spec in objects.drivers
        ]
        return _finished(objects, [stack], [*shared.keys, *unused])
    if not objects.drivers:
        raise OperatorObjectsError(
            f"ClusterPolicy {name} leaves the driver to NVIDIADriver objects, and there is none of them",
            hint="add them: kubectl get nvidiadrivers -o yaml",
        )
    stacks, keys = [], list(shared.keys)
    for driver, spec in objects.drivers:
        own = _Reading(f"NVIDIADriver {driver}", objects, parse)
        nested = {key: value for key, value in spec.items() if key in ("gds", "gdrcopy")}
        rest = {key: value for key, value in spec.items() if key not in nested and key != "nodeSelector"}
        whole = {"driver": rest, **nested}
        own.read(whole, skips=_skips(whole, uses_crd=False), prefix_of_driver="")
        keys += own.keys
        given = spec.get("nodeSelector")
        labels = {str(key): str(each) for key, each in given.items()} if isinstance(given, dict) else {}
        if spec.get("driverType") not in _OF_TYPE_GPU:
            continue  # its key says so
        keys += [
            Key(source=own.source, path=f"spec.nodeSelector[{key}]", value=value, verdict=Verdict.CARRIED,
                became=("nodeSelector.matchLabels",))
            for key, value in labels.items()
        ]  # fmt: skip
        said = _ordered({**shared.said, **own.said})
        stacks.append(DraftedStack(name=_dns_label(driver), labels=labels, said=said))
    return _finished(objects, stacks, keys)


def _read_charts(objects: OperatorObjects, parse: Callable[[str], object]) -> _Reading:
    """Read the values of NVIDIA's DRA driver; GPUs are given by claims unless they say otherwise."""
    reading = _Reading(DRA_DRIVER, objects, parse)
    for values in objects.charts:
        gpus = {"enabled": True, **(_at(values, "resources", "gpus") or {})}
        resources = {**(values.get("resources") or {}), "gpus": gpus}
        has_domains = _at(values, "resources", "computeDomains", "enabled") is not False
        reading.read_values({**values, "resources": resources}, has_domains=has_domains)
    return reading


def _of_charts(objects: OperatorObjects, parse: Callable[[str], object]) -> Conversion:
    """Return the stack of NVIDIA's DRA driver alone, which installs no driver: that stays the host's."""
    reading = _read_charts(objects, parse)
    why = f"{DRA_DRIVER} install none: declare driver.version to have grapnel keep it"
    left = {("driver", "enabled"): Said(("driver", "enabled"), value=False, reason=why)}
    stack = DraftedStack(name="dra-driver-nvidia-gpu", labels={}, said=_ordered(left | reading.said))
    return _finished(objects, [stack], reading.keys)


def _finished(objects: OperatorObjects, stacks: list[DraftedStack], keys: list[Key]) -> Conversion:
    sources = [
        Key(
            source=f"GpuStack {stack.name}",
            path="spec.driver.source",
            value="…",
            verdict=Verdict.MISSING,
            why=NO_SOURCE,
        )
        for stack in stacks
        if not _is_unmanaged(stack)
    ]
    unsaid = [
        Key(
            source=f"GpuStack {stack.name}",
            path="spec.driver.version",
            value="…",
            verdict=Verdict.MISSING,
            why=NO_VERSION,
        )
        for stack in stacks
        if not _has_driver(stack)
    ]
    others = [
        Key(source=each, path="", value="…", verdict=Verdict.MISSING, why="nothing is read of objects of this kind")
        for each in objects.others
    ]
    return Conversion(
        stacks=tuple(
            replace(stack, labels={LABEL: stack.name, **stack.labels}, said=(*stack.said, *_always(stack)))
            for stack in stacks
        ),
        keys=(*keys, *unsaid, *sources, *others),
    )


def _has_driver(stack: DraftedStack) -> bool:
    """Tell whether a stack says which driver there is, or that it is not grapnel's."""
    said = {each.path for each in stack.said}
    return _is_unmanaged(stack) or ("driver", "version") in said or ("driver", "branch") in said


def _is_unmanaged(stack: DraftedStack) -> bool:
    return any(each.path == ("driver", "enabled") and each.value is False for each in stack.said)


def _always(stack: DraftedStack) -> tuple[Said, ...]:
    """Return what a node that had the operator needs in any case."""
    is_there = any(each.path == ("runtime", "adopt") for each in stack.said)
    reason = "handlers that the operator's toolkit left on a node are taken over"
    return () if is_there else (Said(("runtime", "adopt"), value=True, reason=reason),)


def _ordered(said: Mapping[tuple[str, ...], Said]) -> tuple[Said, ...]:
    return tuple(said.values())


class _Reading:
    """Reads one object: what it says, by keys of a GpuStack, and what becomes of each of its keys."""

    def __init__(self, source: str, objects: OperatorObjects, parse: Callable[[str], object]) -> None:
        self.source, self.said, self.keys = source, dict[tuple[str, ...], Said](), list[Key]()
        self._objects, self._parse = objects, parse

    def read(
        self, spec: Spec, *, skips: Callable[[str], str] = lambda _path: "", prefix_of_driver: str = "driver."
    ) -> None:
        """Take every key of a spec; ``skips`` says why one is not looked at, empty where it is."""
        for path, value in _leaves(spec):
            shown = f"spec.{path}" if prefix_of_driver else f"spec.{path.removeprefix('driver.')}"
            self._take(spec, path, shown, value, skips(path))

    def read_values(self, values: Spec, *, has_domains: bool) -> None:
        """Take every value of a chart of NVIDIA's DRA driver."""
        chart = {"dra": values}
        for path, value in _leaves(chart):
            is_off = path.startswith("dra.resources.computeDomains.imex.") and not has_domains
            self._take(chart, path, path.removeprefix("dra."), value, "computeDomains is off" if is_off else "")

    def _take(self, spec: Spec, path: str, shown: str, value: object, skipped: str) -> None:
        if skipped:
            self._note(shown, value, Verdict.IDLE, skipped)
        elif (config := self._of_config_map(spec, path, value)) is not None:
            self._note(shown, value, Verdict.CARRIED, became=tuple(".".join(each.path) for each in config.said))
            self._merge(config)
        elif (of_default := self._of_default(spec, path, value)) is not None:
            verdict, why, became = of_default
            self._note(shown, value, verdict, why, became=became)
        elif (said := self._carried(spec, path, value)) is not None:
            for each in said:
                key = ".".join(each.path)
                reason = REASONS.get(key, "")
                self.said[each.path] = Said(each.path, each.value, f"{self.source}, {shown}{reason and f': {reason}'}")
            self._note(shown, value, Verdict.CARRIED, became=tuple(".".join(each.path) for each in said))
        elif _is_nothing(path, value):
            self._note(shown, value, Verdict.IDLE)
        elif is_of_k3s_or_rke2(path, value):
            is_said = any(
                path in CARRIERS and self._carried(spec, path, value)
                for path, value in _leaves(spec)
                if path.startswith("toolkit.env[")
            )
            self._note(
                shown, value, *((Verdict.COVERED, ENGINE_IS_SAID) if is_said else (Verdict.MISSING, K3S_OR_RKE2))
            )
        else:
            self._note(shown, value, *_verdict(path))

    def _carried(self, spec: Spec, path: str, value: object) -> tuple[Said, ...] | None:
        carrier = CARRIERS.get(path)
        if carrier is None or value is None or value == "" or not _counts(spec, path):
            return None
        said = carrier(value)
        return said if said is not None and _is_taken(said) else None

    def _of_config_map(self, spec: Spec, path: str, value: object) -> Carried | None:
        if not isinstance(value, str) or (data := self._objects.config_maps.get(value)) is None:
            return None
        if path == "devicePlugin.config.name":
            return device_plugin(value, data, str(_at(spec, "devicePlugin", "config", "default") or ""), self._parse)
        if path == "migManager.config.name":
            return mig_layouts(value, data, str(_at(spec, "migManager", "config", "default") or ""), self._parse)
        return module_parameters(value, data) if path == "driver.kernelModuleConfig.name" else None

    def _of_default(self, spec: Spec, path: str, value: object) -> tuple[Verdict, str, tuple[str, ...]] | None:
        """Return what becomes of a key that chooses from a ConfigMap, None where the ConfigMap is not there."""
        part = path.removesuffix(".config.default")
        name = _at(spec, part, "config", "name") if part in _CHOOSING and value else None
        if part == "devicePlugin" and part != path and value and not name:
            return Verdict.IDLE, "no ConfigMap is named", ()
        config = self._of_config_map(spec, f"{part}.config.name", name)
        if config is None:
            return None
        if value not in config.choices:
            return Verdict.MISSING, f"ConfigMap {name} has no {_CHOOSING[part]} of that name", ()
        became = tuple(".".join(each.path) for each in config.said if _is_taken((each,)))
        if part == "migManager":
            became = ("mig.layout",) if "mig.config" in became else ()
            return (
                (Verdict.CARRIED, "", became) if became else (Verdict.MISSING, "its layouts were not carried over", ())
            )
        return (Verdict.CARRIED if became else Verdict.IDLE), "", became

    def _merge(self, config: Carried) -> None:
        for key in config.keys:
            of_key = [each for each in config.said if ".".join(each.path) in key.became]
            if key.verdict is Verdict.CARRIED and not _is_taken(tuple(of_key)):
                why = "grapnel takes no such value: `grapnel check` says why, once it is written down"
                self.keys.append(replace(key, verdict=Verdict.MISSING, why=why, became=()))
                continue
            self.keys.append(key)
            self.said |= {each.path: each for each in of_key}
        if ("mig", "config") in self.said:  # without it, there is no such layout
            self.said |= {each.path: each for each in config.said if each.path == ("mig", "layout")}

    def _note(self, path: str, value: object, verdict: Verdict, why: str = "", *, became: tuple[str, ...] = ()) -> None:
        key = Key(source=self.source, path=path, value=value, verdict=verdict, why=why, became=became)
        self.keys.append(key)


def _verdict(path: str) -> tuple[Verdict, str]:
    """Return what becomes of a key that is not carried over: of one that could be, it is the value that cannot."""
    return (Verdict.MISSING, NO_VALUE) if path in CARRIERS else verdict_of(path)


def _skips(policy: Spec, *, uses_crd: bool) -> Callable[[str], str]:
    """Return what says of keys of a ClusterPolicy why the operator itself does not look at them."""
    off = {part for part, keys in policy.items() if isinstance(keys, dict) and keys.get("enabled") is False}
    has_sandbox = bool(_at(policy, "sandboxWorkloads", "enabled"))
    drains = bool(_at(policy, "driver", "upgradePolicy", "drain", "enable"))

    def skip(path: str) -> str:
        part, _, rest = path.partition(".")
        if part in off and rest != "enabled" and part != "cdi":
            return f"{part} is off"
        if part.startswith(_SANDBOX) and not has_sandbox:
            return "sandboxWorkloads is off"
        if path.startswith("driver.upgradePolicy.drain.") and not drains:
            return "drain is off"
        if uses_crd and part == "driver" and rest.split(".")[0] not in _FROM_ITSELF:
            return _ABOUT_CRD
        return ""

    return skip


def _counts(spec: Spec, path: str) -> bool:
    """Tell whether a key that would be carried over has an effect beside its neighbours."""
    if path.endswith("waitForCompletion.timeoutSeconds"):
        return bool(_at(spec, "driver", "upgradePolicy", "waitForCompletion", "podSelector"))
    return True


def _is_taken(said: tuple[Said, ...]) -> bool:
    """Tell whether the model of a GpuStack takes these values."""
    try:
        stack_of({each.path: each.value for each in said})
    except msgspec.ValidationError:
        return False
    return True


def _is_nothing(path: str, value: object) -> bool:
    if path.endswith("upgradePolicy.autoUpgrade"):
        return value is True  # what grapnel does; false asks for something else
    if path.endswith("SET_AS_DEFAULT]"):
        return str(value).lower() not in ("true", "t", "1")  # as Go reads a boolean; left empty, it is none
    return value in (None, "", [], {}, False, 0) or (isinstance(value, str) and (path, value) in _DEFAULTS)


_DEFAULTS: Final = frozenset(
    {
        ("driver.driverType", "gpu"),
        ("sandboxWorkloads.defaultWorkload", "container"),
        ("sandboxWorkloads.mode", "kubevirt"),
        ("hostPaths.rootFS", "/"),
        ("dra.nvidiaDriverRoot", "/"),
        ("dra.resources.computeDomains.imex.mode", "driverManaged"),
        ("dra.resources.computeDomains.imex.isolation", "domain"),
        ("dra.resources.computeDomains.imex.hostSocketPath", "/etc/nvidia-imex/imex_ctrl.sock"),
        ("dra.kubeletPlugin.kubeletPluginsDirectoryPath", "/var/lib/kubelet/plugins"),
        ("dra.kubeletPlugin.kubeletRegistrarDirectoryPath", "/var/lib/kubelet/plugins_registry"),
    }
)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield every key with its value; variables of ``env`` by their names."""
    for key, each in value.items():
        here = f"{path}{key}"
        if isinstance(each, dict) and each:
            yield from _leaves(each, f"{here}.")
        elif key == "env" and isinstance(each, list) and each:
            for entry in each:
                named = entry if isinstance(entry, dict) else {}
                yield f"{here}[{named.get('name', '?')}]", named.get("value", named.get("valueFrom"))
        else:
            yield here, each


def _at(spec: Spec, *path: str) -> Any:
    found: Any = spec
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _dns_label(name: str) -> str:
    """Return a name as a GpuStack may have it."""
    found = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
    return found[:63].rstrip("-") or "default"
