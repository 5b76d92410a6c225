"""Driver capabilities, in a table."""

from __future__ import annotations

import pytest

from runtime_hook.base.errors import RequestError
from runtime_hook.request.capabilities import parse_capabilities


@pytest.mark.parametrize(
    ("environment", "supported", "capabilities"),
    [
        pytest.param({}, ("compute", "utility"), ("compute", "utility"), id="unset"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": ""}, ("compute", "utility"), ("compute", "utility"), id="empty"),
        pytest.param({}, ("utility", "video"), ("utility",), id="unset, of what is supported"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": "all"}, ("utility", "video"), ("utility", "video"), id="all"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": "x,all"}, ("utility",), ("utility",), id="all wins over nonsense"),
        pytest.param(
            {"NVIDIA_DRIVER_CAPABILITIES": "utility,,utility"}, ("compute", "utility"), ("utility",), id="twice"
        ),
        pytest.param(
            {"NVIDIA_DRIVER_CAPABILITIES": "utility, video"}, ("video", "utility"), ("utility", "video"), id="spaces"
        ),
        pytest.param({"CUDA_VERSION": "9"}, ("compute", "video"), ("compute", "video"), id="a legacy image"),
        pytest.param({"CUDA_VERSION": ""}, ("compute", "video"), ("compute",), id="an empty CUDA_VERSION"),
        pytest.param(
            {"CUDA_VERSION": "9", "NVIDIA_REQUIRE_CUDA": ""}, ("compute", "video"), ("compute",), id="a new image"
        ),
    ],
)
def test_driver_capabilities(
    environment: dict[str, str], supported: tuple[str, ...], capabilities: tuple[str, ...]
) -> None:
    assert parse_capabilities(environment, supported) == capabilities


@pytest.mark.parametrize("text", ["compute,video", "Compute", "gpu", "\0", "none", "c" * 5000])
def test_an_unsupported_capability_refuses_the_container(text: str) -> None:
    with pytest.raises(RequestError, match="unsupported driver capabilities") as caught:
        parse_capabilities({"NVIDIA_DRIVER_CAPABILITIES": text}, ("compute", "utility"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
