"""Configurations of containerd that people have, in every version: what our handler is there, or why it is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import PLUGINS
from provision.planning.render.errors import EngineConfigError

DATA = Path(__file__).parent / "data/containerd"
LOOKED_AT = ("/etc/containerd/runtime_*.toml", "/etc/containerd/debug.toml")
DEBUG = {"/etc/containerd/debug.toml": "version = 4\n"}

TAKEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "kubespray, version 2": (
        "kubespray-1.x.toml",
        "1.7.24",
        {"systemdCgroup": True, "binaryName": "/usr/local/bin/runc"},
    ),
    "kubespray's file under containerd 2": (
        "kubespray-1.x.toml",
        "2.2.1",
        {"systemdCgroup": True, "binaryName": "/usr/local/bin/runc"},
    ),
    "the manual's, version 4": ("manual-4.toml", "2.3.0", {}),
}


@pytest.mark.parametrize(("name", "engine", "options"), TAKEN.values(), ids=TAKEN)
def test_the_handler_is_the_ordinary_runtime_and_the_rest_stays(
    name: str, engine: str, options: dict[str, Any]
) -> None:
    main = (DATA / name).read_text()
    before = tomllib.loads(main)

    files = render_containerd(
        main=main, drop_ins=DEBUG, handlers=("nvidia",), engine_version=engine, looked_at=LOOKED_AT
    )

    after, drop_in = tomllib.loads(files.main), tomllib.loads(files.drop_in)
    handler = drop_in["plugins"][PLUGINS[before["version"]]]["containerd"]["runtimes"]["nvidia"]
    assert after == {**before, "imports": [*before.get("imports", []), "/etc/containerd/conf.d/*.toml"]}
    assert drop_in["version"] == before["version"]
    assert handler["base_runtime_spec"] == BASE_SPEC_PATH
    assert handler.get("options", {}) == options


@pytest.mark.parametrize(
    ("name", "handler", "spec"),
    [
        ("kind-1.25.toml", "nvidia", "/etc/containerd/cri-base.json"),
        ("eks-2.toml", "grapnel", "/etc/containerd/base-runtime-spec.json"),
        ("kubespray-1.x.toml", "nvidia", ""),
    ],
)
def test_the_base_specification_of_the_default_runtime_is_found(name: str, handler: str, spec: str) -> None:
    main = (DATA / name).read_text()
    for adopt in (False, True):
        files = render_containerd(main=main, drop_ins={}, handlers=(handler,), engine_version="2.1.4", adopt=adopt)
        assert files.base_spec == spec
    assert (
        tomllib.loads(files.drop_in)["plugins"].popitem()[1]["containerd"]["runtimes"][handler]["base_runtime_spec"]
        == BASE_SPEC_PATH
    )


def test_the_limits_of_nvidia_s_handler_that_is_taken_over_are_not_lost() -> None:
    main = (DATA / "eks-2.toml").read_text()

    files = render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version="2.1.4", adopt=True)

    assert files.base_spec == "/etc/containerd/base-runtime-spec.json"


REFUSED = {
    "Amazon's, with NVIDIA's runtime": (
        "eks-2.toml",
        "the runtime handler 'nvidia' already exists, and grapnel did not create it",
    ),
    "version 1": (
        "k3s-1.23-version-1.toml",
        "/etc/containerd/config.toml has version 1, which has no drop-ins that can be added to",
    ),
}


@pytest.mark.parametrize(("name", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_added_to_is_refused_with_the_reason(name: str, words: str) -> None:
    with pytest.raises(EngineConfigError) as raised:
        render_containerd(main=(DATA / name).read_text(), drop_ins={}, handlers=("nvidia",), engine_version="1.7.24")

    assert raised.value.message == words
    assert raised.value.hint


BROKEN = "[plugins\n"


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_file_that_is_not_valid_is_named_with_its_line_in_every_version(version: int) -> None:
    with pytest.raises(EngineConfigError) as raised:
        render_containerd(
            main=f"version = {version}\n{BROKEN}", drop_ins={}, handlers=("nvidia",), engine_version="2.3.0"
        )

    assert raised.value.message == (
        "/etc/containerd/config.toml: expected ']' at the end of a table declaration (at line 2, column 9)"
    )


@pytest.mark.parametrize("key", ["BinaryName", "binaryName"])
def test_a_program_that_nobody_knows_is_noticed_however_its_key_is_written(key: str) -> None:
    runc = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    main = f'version = 3\n{runc}options.{key} = "/opt/site/runtime"\n'

    with pytest.raises(EngineConfigError, match="runs /opt/site/runtime, which may inject devices itself"):
        render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version="2.2.1")
