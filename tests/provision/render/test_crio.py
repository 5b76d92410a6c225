"""CRI-O's drop-in: what comes in, what goes out, and what is refused.

That it means to CRI-O 1.36.3 what it should was seen with ``crio status config`` on a node of the lab's cluster.
"""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from provision.planning.engines.crio import DROP_IN_FOLDER, DROP_IN_PATH, MAIN_PATH, render_crio
from provision.planning.engines.files.mark import marked
from provision.planning.render.errors import EngineConfigError

# What CRI-O's own packages bring as 10-crio.conf.
PACKAGED = """\
[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "crun"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = [
    "io.containers.trace-syscall",
]

[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
HOOKS = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"]
ANNOTATION = {"default_annotations": {"grapnel.dev/handler": "nvidia"}}
CRUN = '[crio.runtime.runtimes.crun]\nruntime_path = "/opt/crun"\n'
RUNC = '[crio.runtime.runtimes.runc]\nruntime_path = "/opt/runc"\n'
INJECTOR = '[crio.runtime.runtimes.gpu]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'
KATA = '[crio.runtime.runtimes.kata]\nruntime_path = "/opt/kata"\nruntime_type = "vm"\n'


def render(main: str | None = None, *, engine: str = "1.36.3", handler: str = "nvidia", **drop_ins: str) -> str:
    """Render with drop-ins by the beginning of their names: ``_10_crio`` is ``10-crio.conf``."""
    paths = {f"{DROP_IN_FOLDER}/{name.strip('_').replace('_', '-')}.conf": text for name, text in drop_ins.items()}
    return render_crio(main=main, drop_ins=paths, handlers=(handler,), engine_version=engine)


def runtime_of(text: str) -> dict[str, Any]:
    (table,) = tomllib.loads(text).values()
    runtime: dict[str, Any] = table.pop("runtime")
    assert not table
    return runtime


def test_the_handler_is_the_default_runtime_with_an_annotation() -> None:
    assert render(_10_crio=PACKAGED) == marked(
        "[crio.runtime]\n"
        'hooks_dir = [\n    "/usr/share/containers/oci/hooks.d",\n    "/etc/containers/oci/hooks.d",\n]\n'
        "\n"
        "[crio.runtime.runtimes.nvidia]\n"
        'runtime_path = "/usr/libexec/crio/crun"\n'
        'runtime_root = "/run/crun"\n'
        'monitor_path = "/usr/libexec/crio/conmon"\n'
        'allowed_annotations = [\n    "io.containers.trace-syscall",\n]\n'
        "\n"
        "[crio.runtime.runtimes.nvidia.default_annotations]\n"
        '"grapnel.dev/handler" = "nvidia"\n'
    )


HANDLERS: dict[str, tuple[str | None, dict[str, str], dict[str, Any]]] = {
    "nothing configured: inherited": (None, {}, {"inherit_default_runtime": True}),
    "another file's default runtime": (
        RUNC,
        {"_20": 'crio.runtime.default_runtime = "runc"'},
        {"runtime_path": "/opt/runc"},
    ),
    "the last file's entry, as a whole": (
        CRUN + 'runtime_root = "/x"\n',
        {"_20": '[crio.runtime.runtimes.crun]\nruntime_path = "/newer/crun"'},
        {"runtime_path": "/newer/crun"},
    ),
    "an entry without a path is the default's own program": (
        '[crio.runtime.runtimes.crun]\nmonitor_path = "/opt/conmon"',
        {},
        {"monitor_path": "/opt/conmon", "inherit_default_runtime": True},
    ),
    "a default runtime that no file describes": (
        'crio.runtime.default_runtime = "runc"',
        {},
        {"inherit_default_runtime": True},
    ),
    "not a virtual machine": (
        f'crio.runtime.default_runtime = "kata"\n{KATA}{RUNC}',
        {},
        {"runtime_path": "/opt/runc"},
    ),
    "not another injector": (
        f'crio.runtime.default_runtime = "gpu"\n{INJECTOR}{RUNC}',
        {},
        {"runtime_path": "/opt/runc"},
    ),
    "annotations that the default runtime has": (
        f'{CRUN}default_annotations = {{"a" = "b"}}',
        {},
        {"runtime_path": "/opt/crun", "default_annotations": {"a": "b", "grapnel.dev/handler": "nvidia"}},
    ),
}


@pytest.mark.parametrize(("main", "drop_ins", "expected"), HANDLERS.values(), ids=HANDLERS.keys())
def test_the_handler_follows_from(main: str | None, drop_ins: dict[str, str], expected: dict[str, Any]) -> None:
    assert runtime_of(render(main, **drop_ins)) == {
        "hooks_dir": HOOKS,
        "runtimes": {"nvidia": ANNOTATION | expected},
    }


@pytest.mark.parametrize(
    ("main", "folders"),
    [
        pytest.param('crio.runtime.hooks_dir = ["/a"]', ["/a", HOOKS[1]], id="somebody's folders stay"),
        pytest.param("crio.runtime.hooks_dir = []", [HOOKS[1]], id="none at all"),
        pytest.param(f'crio.runtime.hooks_dir = ["{HOOKS[1]}", "/a"]', ["/a", HOOKS[1]], id="ours once"),
    ],
)
def test_folders_of_hooks_are_kept(main: str, folders: list[str]) -> None:
    assert runtime_of(render(main))["hooks_dir"] == folders


def test_what_was_rendered_before_is_no_reason_against_itself() -> None:
    once = render(_10_crio=PACKAGED)

    assert render(_10_crio=PACKAGED, _99_nvidia=once) == once


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a version that cannot tell the hook": (
        {"engine": "1.31.9"},
        "CRI-O 1.31.9 cannot tell the hook which pods use",
    ),
    "no version": ({"engine": ""}, "CRI-O of an unknown version cannot tell"),
    "a main file that is no TOML": ({"main": "["}, f"{MAIN_PATH}: "),
    "a drop-in that is no TOML": ({"_10_site": "x ="}, f"{DROP_IN_FOLDER}/10-site.conf: "),
    "a handler of that name": (
        {"_50_gpu": "[crio.runtime.runtimes.nvidia]\n"},
        f"'nvidia' is already in {DROP_IN_FOLDER}/50-gpu.conf",
    ),
    "a later file with other folders": (
        {"_99_z": 'crio.runtime.hooks_dir = ["/a"]'},
        f"99-z.conf is read after {DROP_IN_PATH} and sets hooks_dir without",
    ),
    "a runc whose program nobody knows": (
        {"main": '[crio.runtime]\ndefault_runtime = "runc"\nruntimes.runc.runtime_path = "/opt/site/limits"\n'},
        "default runtime is 'runc', the program /opt/site/limits, and no runc or crun is beside it",
    ),
    "virtual machines only": (
        {"main": f'crio.runtime.default_runtime = "kata"\n{KATA}'},
        "default runtime is 'kata', the program /opt/kata, and no runc or crun is beside it",
    ),
    "a runtime of an unknown place that is not the default": (
        {"main": f'crio.runtime.default_runtime = "kata"\n{KATA}[crio.runtime.runtimes.runc]\n'},
        "runtime 'runc' of CRI-O has no runtime_path",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_nothing_is_touched_with(given: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineConfigError) as refused:
        render(**given)

    assert message in refused.value.message
    assert refused.value.hint
