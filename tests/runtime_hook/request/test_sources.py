"""Where a request stands, which of several counts, and what is accepted: the entitlement ``env``."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_hook.inputs.config import HookConfig
from runtime_hook.request.claim import Claim, Nothing
from runtime_hook.request.entitlement import find_claim
from tests.runtime_hook.nodes import container

ENV = "NVIDIA_VISIBLE_DEVICES"
CDI = {"cdi.k8s.io/b": "nvidia.com/gpu=1", "cdi.k8s.io/a": "nvidia.com/gpu=0,nvidia.com/gpu=2", "other": "x"}


def config(**switches: Any) -> HookConfig:
    return HookConfig(entitlement="env", **switches)


STRICT = config(accept_envvar_unprivileged=False)
MOUNTS = config(accept_volume_mounts=True, accept_envvar_unprivileged=False)
EVERYTHING = config(accept_volume_mounts=True, accept_cdi_annotations=True, swarm_resources=("RES_A", "RES_B"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "env", "parts", "source", "names"),
    [
        pytest.param(config(), [f"{ENV}=0,1"], {}, "environment", "0 1", id="the variable"),
        pytest.param(config(), [f"{ENV}=0", f"{ENV}=1"], {}, "environment", "1", id="the last of two entries"),
        pytest.param(config(), ["CUDA_VERSION=9.0"], {}, "environment", "all", id="a legacy image"),
        pytest.param(config(), ["CUDA_VERSION=9.0", f"{ENV}=0"], {}, "environment", "0", id="a legacy image that asks"),
        pytest.param(STRICT, [f"{ENV}=0"], {"privileged": True}, "environment", "0", id="a privileged container"),
        pytest.param(config(), [f"{ENV}=0"], {"requests": ["1"]}, "environment", "0", id="mounts not accepted"),
        pytest.param(MOUNTS, [f"{ENV}=0"], {"requests": ["1"]}, "volume-mount", "1", id="mounts before the variable"),
        pytest.param(MOUNTS, [], {"requests": ["all"]}, "volume-mount", "all", id="all by mount"),
        pytest.param(
            MOUNTS,
            [],
            {"requests": ["cdi/nvidia.com/gpu/0", "cdi/nvidia.com/gpu=1", "MIG-GPU-x/1/0"]},
            "volume-mount",
            "nvidia.com/gpu=0 nvidia.com/gpu=1 MIG-GPU-x/1/0",
            id="CDI names and MIG devices by mount",
        ),
        pytest.param(
            EVERYTHING, [f"{ENV}=0"], {"requests": ["imex/7"]}, "environment", "0", id="mounts of channels alone"
        ),
        pytest.param(EVERYTHING, [f"{ENV}=0", "RES_A=1"], {}, "swarm-resource", "1", id="swarm before the variable"),
        pytest.param(
            EVERYTHING, ["RES_B=2", "RES_A=0, 1"], {}, "swarm-resource", "0 1 2", id="swarm variables one after another"
        ),
        pytest.param(
            EVERYTHING,
            [f"{ENV}=0", "RES_A=1"],
            {"annotations": CDI, "requests": ["1"]},
            "cdi-annotation",
            "nvidia.com/gpu=0 nvidia.com/gpu=2 nvidia.com/gpu=1",
            id="CDI annotations before everything, by key",
        ),
        pytest.param(config(), [f"{ENV}=0"], {"annotations": CDI}, "environment", "0", id="annotations not accepted"),
    ],
)
def test_request(settings: HookConfig, env: list[str], parts: dict[str, Any], source: str, names: str) -> None:
    found = find_claim(container(*env, **parts), settings)
    assert isinstance(found, Claim)
    assert (found.source, found.visible) == (source, tuple(names.split()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "env", "parts", "words", "traced"),
    [
        pytest.param(config(), [], {}, "is not set", False, id="nothing"),
        pytest.param(config(), [f"{ENV}="], {}, "is not set", False, id="an empty variable"),
        pytest.param(config(), [f"{ENV}= ,,"], {}, "is not set", False, id="a list of nothing"),
        pytest.param(config(), [f"{ENV}=void"], {}, "is void", False, id="void"),
        pytest.param(config(), [f"{ENV}=0,void"], {}, "is void", False, id="void in a list"),
        pytest.param(config(), ["CUDA_VERSION=9", f"{ENV}="], {}, "is not set", False, id="a legacy image, empty"),
        pytest.param(config(), ["CUDA_VERSION="], {}, "is not set", False, id="an empty CUDA_VERSION"),
        pytest.param(config(), [], {"requests": ["0"]}, "mounts are not accepted", True, id="mounts not accepted"),
        pytest.param(MOUNTS, [], {"requests": ["imex/0"]}, "is not set", False, id="a mount of a channel alone"),
        pytest.param(STRICT, [f"{ENV}=all"], {}, "unprivileged containers is not accepted", True, id="unprivileged"),
        pytest.param(STRICT, ["CUDA_VERSION=9"], {}, "is not accepted", True, id="an unprivileged legacy image"),
        pytest.param(
            STRICT,
            [f"{ENV}=all"],
            {"privileged": True, "own_users": True},
            "is not accepted",
            True,
            id="privileged in a user namespace alone",
        ),
        pytest.param(EVERYTHING, [f"{ENV}=0", "RES_A="], {}, "RES_A is not set", False, id="an empty swarm variable"),
        pytest.param(MOUNTS, [f"{ENV}=0"], {"requests": ["void"]}, "is void", False, id="void by mount"),
        pytest.param(config(denial="because"), [f"{ENV}=0"], {}, "because", True, id="denied by a rule"),
        pytest.param(config(denial="because"), [], {}, "is not set", False, id="denied, and asks for nothing"),
    ],
)
def test_no_request(settings: HookConfig, env: list[str], parts: dict[str, Any], words: str, *, traced: bool) -> None:
    found = find_claim(container(*env, **parts), settings)
    assert isinstance(found, Nothing)
    assert words in found.reason
    assert found.is_traced == traced


@pytest.mark.parametrize(
    ("settings", "env", "parts", "channels"),
    [
        pytest.param(config(), ["NVIDIA_IMEX_CHANNELS=0, 7"], {}, "0 7", id="by variable"),
        pytest.param(config(), ["NVIDIA_IMEX_CHANNELS=all"], {}, "", id="all counts for nothing"),
        pytest.param(config(), ["NVIDIA_IMEX_CHANNELS=0"], {"requests": ["imex/7"]}, "0", id="mounts not accepted"),
        pytest.param(
            EVERYTHING, ["NVIDIA_IMEX_CHANNELS=0"], {"requests": ["imex/7"]}, "7", id="mounts before the variable"
        ),
        pytest.param(MOUNTS, ["NVIDIA_IMEX_CHANNELS=0"], {"requests": ["0"]}, "", id="a variable that is not accepted"),
        pytest.param(config(ignore_imex_channels=True), ["NVIDIA_IMEX_CHANNELS=0"], {}, "", id="ignored on this node"),
    ],
)
def test_imex_channels(settings: HookConfig, env: list[str], parts: dict[str, Any], channels: str) -> None:
    found = find_claim(container(f"{ENV}=0", *env, **parts), settings)
    assert isinstance(found, Claim)
    assert found.imex == tuple(channels.split())


def test_channels_without_a_gpu_are_no_request() -> None:
    assert isinstance(find_claim(container("NVIDIA_IMEX_CHANNELS=0"), config()), Nothing)
