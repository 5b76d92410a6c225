"""Describes a node's container engine: which one, its handler for GPUs, whose that is, what entitles containers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine, Runtime
from provision.planning.draft.choose import Choosing
from provision.planning.draft.files import read_object
from provision.planning.draft.model import Plan, Section, Unsaid
from provision.planning.engines.files.runtimes import is_ordinary_name
from provision.planning.engines.table import ENGINES
from provision.planning.node_plan import Role
from provision.planning.planner.runtime.adoption import plan_adoption
from provision.planning.render.errors import EngineConfigError
from provision.planning.render.hook_config import HOOK_CONFIG_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts

_DEFAULT: Final = re.compile(
    r"""^\s*"?(?:default_runtime_name|default_runtime|default-runtime)"?\s*[=:]\s*["'](.+?)["']""", re.MULTILINE
)
_USUAL: Final = "nvidia"
_HANDLER_REASON: Final = "the handler that is there"
_KUBELET: Final = "kubelet.service"


def describe_runtime(facts: NodeFacts, plan: Plan) -> Section:
    """Return what can be said about the engine of a node."""
    choosing = Choosing(facts, plan, "runtime", Role.RUNTIME)
    engines = _engines(facts)
    if not engines:
        choosing.say("enabled", False, "no container engine is on these nodes")
        return Section(tuple(choosing.said))
    engine = engines[0]
    if engine != "containerd":
        choosing.say("engine", engine, _why(facts, engine))
    names = _handlers(facts, engine)
    _say_hook_settings(choosing, facts)
    is_ours = facts.installed_digest("hook") is not None
    handler = choosing.say_best("handler", _candidates(names, is_ours=is_ours), _HANDLER_REASON)
    _say_adopt(choosing, engine, handler)
    offers = choosing.settle(is_ours=is_ours, reason="grapnel's hook is there")
    return Section(tuple(choosing.said), tuple(_unsaid(facts, engine, engines, handler, names)), offers)


def _candidates(names: list[str], *, is_ours: bool) -> tuple[str, ...]:
    """Return which handlers may be the one for GPUs: a name of NVIDIA's where another product's are there."""
    of_nvidia = [name for name in names if "nvidia" in name]
    if is_ours or not of_nvidia or _USUAL in of_nvidia:
        return tuple(dict.fromkeys([_USUAL, *(names if is_ours else [])]))
    return (of_nvidia[0],)


def _say_adopt(choosing: Choosing, engine: str, handler: str) -> None:
    """Say whether a handler is to be taken over: where a plan wants it, and where ours would take a file's place."""
    reason = f"the handler {handler} is another product's: it is taken over when enabled is true"
    try:
        moves = plan_adoption(choosing.facts, Runtime(engine=Engine(engine), handler=handler, adopt=True)).items
    except EngineConfigError:
        moves = ()
    if moves:
        choosing.say("adopt", True, reason)
    else:
        choosing.say_best("adopt", (False, True), reason)


def _engines(facts: NodeFacts) -> list[str]:
    """Return the engines, the one that runs the node's containers first."""
    there = [engine for engine in ENGINES if facts.engines.get(engine.value) is not None]
    has_kubelet = facts.service(_KUBELET).load == "loaded"

    def rank(engine: Engine) -> tuple[bool, bool, bool]:
        runs = facts.service(f"{engine.value}.service").is_running
        return engine.value != facts.kubelet_engine, not runs, ENGINES[engine].brings_another is has_kubelet

    return [engine.value for engine in sorted(there, key=rank)]


def _why(facts: NodeFacts, engine: str) -> str:
    found = facts.engines[engine]
    return "" if found is None else f"{found.binary} {found.version}"


def _texts(facts: NodeFacts, engine: str) -> Iterator[str]:
    folder = ENGINES[Engine(engine)].folder
    return (
        state.content
        for path, state in sorted(facts.files.items())
        if folder and path.startswith(folder) and state and state.content
    )


def _handlers(facts: NodeFacts, engine: str) -> list[str]:
    """Return the names of handlers that are no ordinary runtimes."""
    handlers_in = ENGINES[Engine(engine)].handlers_in
    return sorted({name for text in _texts(facts, engine) for name in handlers_in(text)})


def _say_hook_settings(choosing: Choosing, facts: NodeFacts) -> None:
    hook = read_object(facts.content(HOOK_CONFIG_PATH))
    if hook.get("entitlement") == "env":
        choosing.say("entitlement", "env", HOOK_CONFIG_PATH)
    elif not hook and facts.service(_KUBELET).load != "loaded":
        choosing.say("entitlement", "env", "no kubelet is on these nodes: images ask for GPUs themselves")


def _unsaid(facts: NodeFacts, engine: str, engines: list[str], handler: str, names: list[str]) -> Iterator[Unsaid]:
    if len(engines) > 1:
        others = ", ".join(engines[1:])
        yield Unsaid(
            "other-engines", f"{others} is there beside {engine}, and a declaration has one engine", "it is left alone"
        )
    if others := ", ".join(name for name in names if name != handler):
        yield Unsaid(
            "other-handlers",
            f"more handlers of NVIDIA's or others' stay as they are, with their programs: {others}",
            "name them in runtime.handlerAliases to take them over, too, or leave them as long as pods name them",
        )
    said = [found.group(1) for text in _texts(facts, engine) if (found := _DEFAULT.search(text))]
    if said and not is_ordinary_name(said[-1]):
        yield Unsaid(
            "default-runtime",
            f"the engine's default runtime is {said[-1]!r}, which no key says: it stays, also for pods without a class",
            "make it runc again once pods that need GPUs name a RuntimeClass",
        )
    for path in ("/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml"):
        if path in facts.product_files:
            yield Unsaid(
                "cdi-file", f"{path} names the same devices as grapnel's own file", "remove it when the hook is there"
            )
