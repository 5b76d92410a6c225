"""Whoever comes from NVIDIA's toolkit is told what is in the way, and led to the page that says what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.crio import render_crio
from provision.planning.engines.docker import render_docker
from provision.planning.engines.files.hook import DEFAULT_FOLDER, require_no_injector
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[3] / "docs/migrate.md"
RUNTIME = "nvidia-container-runtime"
# What nvidia-ctk makes of each engine's configuration, and the words of the page for what the plan says about it.
CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/{RUNTIME}"
"""
CRIO = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/{RUNTIME}"\nruntime_type = "oci"\n'
DOCKER = f'{{"runtimes": {{"nvidia": {{"args": [], "path": "{RUNTIME}"}}}}}}'
HOOK = '{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}}'


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        pytest.param(
            "the runtime handler 'nvidia' already exists",
            lambda: render_containerd(main=CONTAINERD, drop_ins={}, handlers=("nvidia",), engine_version="1.7.24"),
            id="containerd",
        ),
        pytest.param(
            "the runtime handler 'nvidia' is already in ",
            lambda: render_crio(
                main="",
                drop_ins={"/etc/crio/crio.conf.d/99-nvidia.toml": CRIO},
                handlers=("nvidia",),
                engine_version="1.36",
            ),
            id="CRI-O",
        ),
        pytest.param(
            "the runtime 'nvidia' is already in /etc/docker/daemon.json",
            lambda: render_docker(main=DOCKER, handlers=("nvidia",), engine_version="26.1.5"),
            id="Docker",
        ),
        pytest.param(
            "/oci-nvidia-hook.json: starts NVIDIA's hook",
            lambda: require_no_injector(
                {f"{DEFAULT_FOLDER}/oci-nvidia-hook.json": HOOK}, [DEFAULT_FOLDER], engine="Podman"
            ),
            id="Podman",
        ),
    ],
)
def test_what_nvidias_toolkit_left_is_explained_on_the_page_that_the_hint_names(
    words: str, plan: Callable[[], object]
) -> None:
    with pytest.raises(EngineConfigError) as raised:
        plan()

    assert words in raised.value.message
    assert "docs/migrate.md" in raised.value.hint
    assert words in PAGE.read_text(encoding="utf-8")
