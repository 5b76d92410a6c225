from __future__ import annotations

import pytest

from tests.plugin.metrics.promql import metric_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        pytest.param("up", {"up"}, id="a name alone"),
        pytest.param('up{job="a b", x=~"c{d}"} == 0', {"up"}, id="a selector"),
        pytest.param("a > 1e3 and on (instance) b == 0", {"a", "b"}, id="two that are matched by a label"),
        pytest.param("sum by (instance, le) (rate(a_bucket[5m]))", {"a_bucket"}, id="functions and a range"),
        pytest.param("avg without(pod) (a) unless b offset 5m", {"a", "b"}, id="words of the language"),
        pytest.param('label_values(a{x=~"$y"}, instance)', {"a", "instance"}, id="a function of boards names a label"),
        pytest.param("a:b:c", {"a:b:c"}, id="a recording rule"),
    ],
)
def test_names(expression: str, names: set[str]) -> None:
    assert metric_names(expression) == names
