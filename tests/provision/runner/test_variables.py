from __future__ import annotations

import pytest
import yaml

from provision.apply.runner.workspace import render_variables


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"version": "1.10", "on": True, "none": None, "many": ["yes", 2]}, id="types stay"),
        pytest.param({"text": "a\n\tb \\ \"c\" 'd' → \x07\n\n"}, id="white space and quotes"),
        pytest.param({"a": ["x"], "b": ["x"]}, id="equal values"),
        pytest.param({"items": ("a", "b")}, id="tuple"),
    ],
)
def test_values_come_back_as_they_were(value: dict[str, object]) -> None:
    plain = {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
    text = render_variables(value)
    assert yaml.safe_load(text) == plain
    assert "&" not in text


@pytest.mark.parametrize("text", ["{{ x }}", "a {% if %}", "{# c #}", "#jinja2: a:b\n"])
def test_what_ansible_would_evaluate_is_tagged(text: str) -> None:
    assert "!unsafe" in render_variables({"files": [{"content": text}]})


def test_other_text_is_not_tagged() -> None:
    assert "!unsafe" not in render_variables({"version": "1.10", "map": {"a": "{b}"}})
