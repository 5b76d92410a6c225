from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.publication.node_object.label_owners import is_label, still_refused, usable_labels

# Kubernetes' own words for it: IsQualifiedName and IsValidLabelValue in apimachinery's validation.
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


@pytest.mark.parametrize(
    ("key", "value", "is_good"),
    [
        pytest.param("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB", True, id="as GFD makes them"),
        pytest.param("nvidia.com/gpu.machine", "", True, id="an empty value"),
        pytest.param("nvidia.com/", "a", False, id="no name"),
        pytest.param("nvidia.com/a b", "a", False, id="a space in the name"),
        pytest.param("nvidia.com/a/b", "a", False, id="two slashes"),
        pytest.param("nvidia.com/a", "NVIDIA A100", False, id="a space in the value"),
        pytest.param("nvidia.com/a", "a\n", False, id="another line"),
        pytest.param("nvidia.com/a", "x" * 64, False, id="a value that is too long"),
        pytest.param("nvidia.com/a", "x" * 63, True, id="one that is just not"),
        pytest.param("nvidia.com/a", "-a", False, id="a dash at the start"),
        pytest.param("kubernetes.io/hostname", "a", False, id="somebody else's"),
        pytest.param("evil.nvidia.com/a", "a", False, id="below the domain"),
    ],
)
def test_labels(key: str, value: str, is_good: bool) -> None:  # noqa: FBT001 - a column
    assert is_label(key, value) is is_good


@given(st.text(alphabet="aZ9-_./ é\n", max_size=66), st.text(alphabet="aZ9-_./ é\n", max_size=66))
def test_a_label_is_one_by_kubernetes_rules(name: str, value: str) -> None:
    is_name = len(name) <= 63 and NAME.fullmatch(name) is not None
    is_value = value == "" or (len(value) <= 63 and NAME.fullmatch(value) is not None)
    assert is_label(f"nvidia.com/{name}", value) is (is_name and is_value)


def test_bad_labels_do_not_cost_the_good_ones() -> None:
    labels = {"nvidia.com/a": "1", "other/b": "2", "nvidia.com/c": "x y"}
    assert usable_labels(labels) == ({"nvidia.com/a": "1"}, ("other/b", "nvidia.com/c"))


def test_there_are_not_more_than_a_node_can_bear() -> None:
    usable, unusable = usable_labels({f"nvidia.com/{number:04}": "" for number in range(300)})
    assert (len(usable), len(unusable)) == (256, 44)


def test_a_label_that_is_free_or_says_the_same_is_not_refused_any_more() -> None:
    refused = {"a": "gfd", "b": "gfd", "c": "gfd"}
    assert still_refused(refused, {"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "1"}) == {"a": "gfd"}
