"""Which runtime our handler is made from: an ordinary one, never another injector, with any of the engines."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.crio import render_crio
from provision.planning.engines.docker import render_docker
from provision.planning.engines.files.runtimes import is_injector, is_ordinary
from provision.planning.render.errors import EngineConfigError

CRI = '[plugins."io.containerd.grpc.v1.cri"'
RUNTIMES = f"{CRI}.containerd.runtimes"


def of_crio(main: str) -> dict[str, Any]:
    text = render_crio(main=main, drop_ins={}, handlers=("nvidia",), engine_version="1.36.3")
    handler: dict[str, Any] = tomllib.loads(text)["crio"]["runtime"]["runtimes"]["nvidia"]
    return handler


ORDINARY = ["runc", "crun", "youki", "/usr/sbin/runc", "runc-1.2.4", "runc.amd64", "/opt/crun-v1.19", "runc_x86_64"]
NVIDIAS = [
    "nvidia-container-runtime",
    "/usr/bin/nvidia-container-runtime.cdi",
    "nvidia-container-runtime.legacy",
    "nvidia-container-runtime.experimental",
    "nvidia-container-runtime-experimental",
    "/usr/local/nvidia/toolkit/runc",
    "NVIDIA-Container-Runtime",
    "runc.nvidia",
    "nvidia-container-runtime-1.17.8",
]


@pytest.mark.parametrize("program", ORDINARY)
def test_an_ordinary_runtime_is_known(program: str) -> None:
    assert is_ordinary(program)
    assert not is_injector([program])


@pytest.mark.parametrize("program", NVIDIAS)
def test_nvidias_wrapper_is_known_by_any_of_its_names(program: str) -> None:
    assert is_injector([program])
    assert not is_ordinary(program)


@pytest.mark.parametrize("program", ["/opt/site/wrap", "runc-wrapper", "runc.sh", "xrunc", "", "runc-"])
def test_a_program_of_an_unknown_name_is_not_ordinary(program: str) -> None:
    assert not is_ordinary(program)


def of_containerd(program: str, more: str = "") -> dict[str, Any]:
    main = (
        f'version = 2\n{CRI}.containerd]\ndefault_runtime_name = "default"\n{RUNTIMES}.default]\n'
        f'runtime_type = "io.containerd.runc.v2"\n{RUNTIMES}.default.options]\nBinaryName = "{program}"\n'
        f"SystemdCgroup = true\n{more}"
    )
    files = render_containerd(main=main, drop_ins={}, handlers=("nvidia",), engine_version="1.7.24")
    (plugin,) = tomllib.loads(files.drop_in)["plugins"].values()
    handler: dict[str, Any] = plugin["containerd"]["runtimes"]["nvidia"]
    return handler


@pytest.mark.parametrize("program", NVIDIAS)
def test_containerds_handler_inherits_the_options_of_nvidias_wrapper_without_the_wrapper(program: str) -> None:
    assert of_containerd(program)["options"] == {"SystemdCgroup": True}


@pytest.mark.parametrize("program", [*NVIDIAS, "/opt/site/wrap"])
def test_containerds_handler_inherits_the_plain_runtime_beside_another(program: str) -> None:
    plain = f'{RUNTIMES}.runc.options]\nBinaryName = "/usr/sbin/runc"\n'

    assert of_containerd(program, plain)["options"] == {"BinaryName": "/usr/sbin/runc"}


def test_a_wrapper_of_an_unknown_name_is_nothing_to_inherit_for_containerd() -> None:
    with pytest.raises(EngineConfigError, match="the runtime 'default' runs /opt/site/wrap, which may inject devices"):
        of_containerd("/opt/site/wrap")


@pytest.mark.parametrize("program", [*NVIDIAS, "/opt/site/wrap"])
def test_crios_handler_inherits_the_plain_runtime_or_none(program: str) -> None:
    default = f'[crio.runtime]\ndefault_runtime = "x"\n[crio.runtime.runtimes.x]\nruntime_path = "{program}"\n'
    plain = '[crio.runtime.runtimes.runc]\nruntime_path = "/usr/sbin/runc"\n'

    match = f"CRI-O's default runtime is 'x', the program {re.escape(program)}, and no runc or crun is beside it"
    with pytest.raises(EngineConfigError, match=match):
        of_crio(default)
    assert of_crio(default + plain)["runtime_path"] == "/usr/sbin/runc"


def test_crios_runtime_without_a_path_is_known_by_its_name() -> None:
    with pytest.raises(EngineConfigError, match=r"'nvidia-container-runtime\.cdi', and no runc or crun is beside it"):
        of_crio('crio.runtime.default_runtime = "nvidia-container-runtime.cdi"')


@pytest.mark.parametrize("program", NVIDIAS)
def test_nvidias_runtime_of_docker_comes_with_its_remedy(program: str) -> None:
    with pytest.raises(EngineConfigError) as refusal:
        render_docker(
            main=json.dumps({"runtimes": {"nvidia": {"path": program}}}), handlers=("nvidia",), engine_version="26.1.5"
        )
    assert "uninstall NVIDIA's toolkit" in refusal.value.hint
