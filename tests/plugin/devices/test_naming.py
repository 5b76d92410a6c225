from __future__ import annotations

import pytest

from plugin.devices.naming import NamePattern, explain_change, find_pattern, parse_resource_name
from plugin.settings.explain import notes_on_patterns

MODEL = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        pytest.param("*", MODEL, True, id="anything"),
        pytest.param("NVIDIA*80GB", MODEL, True, id="both ends"),
        pytest.param(MODEL, MODEL, True, id="the whole name"),
        pytest.param("*A100*", MODEL, True, id="a part of the name"),
        pytest.param("A100", MODEL, False, id="a part of the name without wildcards"),
        pytest.param("NVIDIA A10", MODEL, False, id="the beginning of another product's name"),
        pytest.param("A100*80GB", MODEL, False, id="not from the beginning on"),
        pytest.param("*A100*A100*", MODEL, False, id="a part that is there once"),
        pytest.param("*a100*", MODEL, False, id="other case"),
        pytest.param("*A100.SXM4*", MODEL, False, id="a dot is a dot"),
        pytest.param("*(A100*", MODEL, False, id="brackets are brackets"),
        pytest.param("1g.24gb", "1g.24gb", True, id="a profile"),
        pytest.param("1g.24gb", "1g.24gb-me", False, id="a profile without media engines"),
        pytest.param("1g.24gb", "1g.24gb+me.all", False, id="a profile with all media engines"),
        pytest.param("1g.24gb", "1g.24gb+gfx", False, id="a profile with graphics"),
        pytest.param("1g.24gb-me", "1g.24gb-me", True, id="a profile without media engines by its name"),
        pytest.param("1g.24gb+me.all", "1g.24gb+me.all", True, id="a plus is a plus"),
        pytest.param("1g.*", "1g.24gb+gfx", True, id="every profile of one slice"),
        pytest.param("*gb", "2g.48gb", True, id="an end"),
        pytest.param("*gb", "2g.48gb+gfx", False, id="an end that is not the name's"),
    ],
)
def test_a_pattern_is_the_whole_name(pattern: str, name: str, fits: bool) -> None:  # noqa: FBT001 - a column of the table
    assert NamePattern(pattern, "nvidia.com/x").fits(name) is fits


def test_the_first_pattern_that_fits_counts() -> None:
    patterns = (NamePattern("*H100*", "a/h"), NamePattern("*A100*", "a/a"), NamePattern("*", "a/rest"))
    assert find_pattern(MODEL, patterns) == patterns[1]
    assert find_pattern(MODEL, patterns[:1]) is None


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        pytest.param([("*A100*", "a/a")], "", id="nothing changed"),
        pytest.param([("H100", "a/h"), ("*", "a/rest")], "", id="a pattern of another product"),
        pytest.param([("A100", "a/a"), ("NVIDIA A100*", "a/a")], "", id="another pattern gives it the same name"),
        pytest.param([("A100", "a/a"), ("*", "a/rest")], 'write "*A100*"', id="it has another name now"),
        pytest.param([("A100*80GB", "a/a")], 'write "*A100*80GB*"', id="it has no name any more"),
    ],
)
def test_what_became_of_a_pattern_of_0_19_is_told(patterns: list[tuple[str, str]], told: str) -> None:
    change = explain_change(MODEL, [NamePattern(*pattern) for pattern in patterns])
    assert told in change
    assert bool(change) is bool(told)


def test_patterns_that_may_mean_something_else_are_told_where_no_gpu_is_known() -> None:
    patterns = (NamePattern("A100", "a/a", "f:4"), NamePattern("*H100*", "a/h", "f:5"), NamePattern("*", "a/rest"))
    (note,) = notes_on_patterns(patterns, None)
    assert note.startswith('f:4: pattern "A100": since 0.20')
    assert notes_on_patterns(patterns, ("NVIDIA H100 PCIe",)) == ()


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
