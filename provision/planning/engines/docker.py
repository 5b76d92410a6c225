"""Knows Docker: one runtime in ``/etc/docker/daemon.json``, CDI where Docker has it, and a program for ``--gpus``.

Docker reads that file alone: no drop-ins, no includes. So it is edited as a tree, every key of somebody else's stays,
and a file that already says what is wanted stays as it is, byte by byte. The runtime is the wrapper that brings the
hook (``runtime_hook.engines.wrapper``).

For ``--gpus`` dockerd knows one maker of GPUs by the name of a program, looks for it in its ``PATH`` once, when it
starts, and adds it as a ``prestart`` hook to each container that is given ``--gpus`` (`runtime_hook.inputs.bundle` has
the sources). Ours stands where no package puts files, and goes behind NVIDIA's own: while that is installed, everything
is as it was.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Engine, EngineSource
from provision.planning.engines.files.engine_file import Table, bom_of, parse_json, version_numbers
from provision.planning.engines.files.hook import HOOK_PATH
from provision.planning.engines.files.present import mode_of, text_of, version_of_engine
from provision.planning.engines.files.runtimes import is_injector, is_ordinary_name
from provision.planning.engines.model import Files, KnownEngine, NodeEngine
from provision.planning.engines.package import (
    CONTAINERDS,
    DEBIAN_KIN,
    DOCKER_CE,
    DOCKER_IO,
    DOCKERS_SYSTEMS,
    EnginePackage,
)
from provision.planning.node_plan import FileContent, Problem
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

MAIN_PATH = "/etc/docker/daemon.json"
GPUS_PATH = "/usr/local/sbin/nvidia-container-runtime-hook"
WRAPPER_PATH = str(PurePosixPath(HOOK_PATH).with_name("grapnel-runtime"))
_FIRST_WITH_CDI = (25,)  # as a feature that has to be switched on
_FIRST_WITH_CDI_ON = (28, 2)
_CDI_FOLDER = "/var/run/cdi"  # where the hook's file is
_CDI_FOLDERS_KEY = "cdi-spec-dirs"
_SHOW = "dockerd --validate"
_SERVICE = "docker.service"
_NVIDIAS_GPUS_PATH = "/usr/bin/nvidia-container-runtime-hook"
_MARK = "# managed by grapnel: "
_GPUS_PROGRAM = """\
#!/bin/sh
{mark}what `docker run --gpus` starts. NVIDIA's program of this name goes first where it is installed.
theirs={theirs}
[ -x "$theirs" ] && ! [ "$theirs" -ef "$0" ] && exec "$theirs" "$@"
if [ "${{1-}}" != prestart ]; then
    echo "nvidia-container-runtime-hook: this is grapnel's, for docker run --gpus, and knows prestart alone" >&2
    exit 2
fi
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \\
    {hook} prestart --entitlement gpus
"""
_INSTEAD: Final = (
    "until then: docker run --runtime {handler} -e NVIDIA_VISIBLE_DEVICES=0 (with entitlement: env), "
    "or --device nvidia.com/gpu=0 (Docker 25 and later)"
)


def render_docker(*, main: str | None, handlers: Sequence[str], engine_version: str, adopt: bool = False) -> str:
    """Return the file's text with our runtime in it; ``main`` is its present text (None: absent).

    Raises `EngineConfigError` when nothing should be touched: it is no JSON object, or the name is somebody else's and
    not to be taken over (``adopt``).
    """
    tree = parse_json(MAIN_PATH, main or "", show=_SHOW)
    runtimes, features = _object(tree, "runtimes"), _object(tree, "features")
    for handler in () if adopt else handlers:
        _require_free(runtimes, handler)
    ours = {handler: {"path": WRAPPER_PATH} for handler in handlers}
    wanted = {**tree.values, "runtimes": {**runtimes.values, **ours}}
    if _FIRST_WITH_CDI <= version_numbers(engine_version) < _FIRST_WITH_CDI_ON:
        wanted["features"] = {"cdi": True, **features.values}
    if folders := tree.texts(_CDI_FOLDERS_KEY):
        wanted[_CDI_FOLDERS_KEY] = [*folders, *([] if {_CDI_FOLDER, "/run/cdi"} & {*folders} else [_CDI_FOLDER])]
    if main is not None and wanted == tree.values:
        return main
    return bom_of(main or "") + _dumps(wanted) + "\n"


def _dumps(wanted: dict[str, object]) -> str:
    text = json.dumps(wanted, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a pair of surrogates, which JSON can write and UTF-8 cannot
        return json.dumps(wanted, indent=2)
    return text


def _object(tree: Table, key: str) -> Table:
    """Return an object in the file, an empty one for null."""
    return Table(tree.path, {}, (key,), tree.kind) if tree.values.get(key) is None else tree.table(key)


def _require_free(runtimes: Table, handler: str) -> None:
    entry = runtimes.tables().get(handler)
    if entry is None or entry.text("path") == WRAPPER_PATH:
        return
    remedy = (
        "uninstall NVIDIA's toolkit and remove the entry" if is_injector([entry.text("path")]) else "remove the entry"
    )
    raise EngineConfigError(
        f"the runtime {handler!r} is already in {MAIN_PATH}, and grapnel did not create it",
        hint=f"{remedy}, declare runtime.adopt: true or another runtime.handler: docs/migrate.md has the ways",
    )


def render_gpus_program(*, hook: str = HOOK_PATH, theirs: str = _NVIDIAS_GPUS_PATH) -> str:
    """Return the text of the program that Docker starts for ``--gpus``."""
    return _GPUS_PROGRAM.format(mark=_MARK, hook=hook, theirs=theirs)


def _engine_files(facts: NodeFacts, stack: StackSpec) -> Files:
    rendered = render_docker(
        main=text_of(facts, MAIN_PATH),
        handlers=stack.runtime.handlers,
        engine_version=version_of_engine(facts, Engine.DOCKER),
        adopt=stack.runtime.adopt,
    )
    main = FileContent(MAIN_PATH, rendered, mode_of(facts, MAIN_PATH))
    return (main,) if _has_others_program(facts) else (FileContent(GPUS_PATH, render_gpus_program(), "0755"), main)


def _warnings(facts: NodeFacts, stack: StackSpec) -> tuple[Problem, ...]:
    """Return why ``--gpus`` of the Docker that runs does not do what grapnel would do."""
    if _has_others_program(facts):
        foreign = Problem(
            code="docker-gpus-foreign",
            message=f"{GPUS_PATH} is not grapnel's, and decides what docker run --gpus does",
            hint="take it away, and plan again: grapnel then puts its own there",
        )
        return (foreign,)
    engine = facts.engines.get(Engine.DOCKER.value)
    if engine is None or engine.takes_gpus is not False or not facts.service(_SERVICE).is_running:
        return ()
    instead = _INSTEAD.format(handler=stack.runtime.handler)
    late = Problem(
        code="docker-gpus-late",
        message="docker run --gpus works from Docker's next start on: dockerd looks for a program only when it starts",
        hint=f"systemctl restart docker (it ends containers without live-restore); {instead}",
    )
    return (late,)


def _has_others_program(facts: NodeFacts) -> bool:
    state = facts.file(GPUS_PATH)
    return state is not None and _MARK not in (state.content or "")


def _handlers_in(text: str) -> list[str]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return []
    runtimes = tree.get("runtimes") if isinstance(tree, dict) else None
    return [name for name in runtimes if not is_ordinary_name(name)] if isinstance(runtimes, dict) else []


_ON_NODE: Final = NodeEngine(
    name=Engine.DOCKER.value,
    service=_SERVICE,
    packages={
        EngineSource.DISTRIBUTION: {
            **dict.fromkeys(DEBIAN_KIN, DOCKER_IO),
            **dict.fromkeys(("amzn", "sles"), EnginePackage("docker")),
        },
        EngineSource.DOCKER: dict.fromkeys(DOCKERS_SYSTEMS, DOCKER_CE),
    },
    defaults={"debian": {MAIN_PATH: None}},  # docker.io 26.1.5+dfsg1-9+deb13u1
    show_config=_SHOW,
    engine_paths=(GPUS_PATH, MAIN_PATH),
    drop_in_path=MAIN_PATH,
    engine_files=_engine_files,
    live_files=frozenset({GPUS_PATH}),
    reloads=True,
    names_devices=True,
    runs_with=CONTAINERDS,
    warnings=_warnings,
)
DOCKER: Final = KnownEngine(
    lambda _: _ON_NODE,
    toolkit_paths=("/etc/docker", "/run/docker.sock"),
    folder="/etc/docker/",
    handlers_in=_handlers_in,
    brings_another=True,
)
