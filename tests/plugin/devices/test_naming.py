from __future__ import annotations

import pytest

from plugin.devices.naming import NamePattern, parse_resource_name, resource_for

MODEL = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        pytest.param("*", True, id="anything"),
        pytest.param("A100", True, id="a part of the name"),
        pytest.param("NVIDIA*80GB", True, id="both ends"),
        pytest.param("A100*A100", False, id="a part that is there once"),
        pytest.param("a100", False, id="other case"),
        pytest.param("A100.SXM4", False, id="a dot is a dot"),
        pytest.param("(A100", False, id="brackets are brackets"),
    ],
)
def test_patterns(pattern: str, fits: bool) -> None:  # noqa: FBT001 - a column of the table
    assert NamePattern(pattern, "nvidia.com/x").fits(MODEL) is fits


def test_the_first_pattern_that_fits_counts() -> None:
    patterns = (NamePattern("H100", "a/h"), NamePattern("A100", "a/a"), NamePattern("*", "a/rest"))
    assert resource_for(MODEL, patterns) == "a/a"
    assert resource_for(MODEL, patterns[:1]) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        pytest.param("gpu", "nvidia.com/gpu", id="a bare name"),
        pytest.param("nvidia.com/gpu", "nvidia.com/gpu", id="a whole name"),
        pytest.param("example.com/h100.80gb", "example.com/h100.80gb", id="a domain of its own"),
    ],
)
def test_names(value: str, name: str) -> None:
    assert parse_resource_name(value) == name


@pytest.mark.parametrize(
    "value", ["", "GPU", "a/b/c", "-gpu", "gpu_1", "kubernetes.io/gpu", "x" * 53, 7, None, "gpu\n", "/gpu"]
)
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_resource_name(value)
