"""What passes of a module's answer, by type and size."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.grapnel.node.plugins.plugin_utils.answer import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_VALUES,
    AnswerError,
    check_answer,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
RETURNS = {"paths": list, "previous": str}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
KEYS = st.sampled_from(["changed", "failed", "msg", "rc", "diff", "paths", "ansible_facts", "results"]) | st.text()


class Tagged(str):
    """A text with something else about it, as Ansible's are."""

    __slots__ = ()


def test_what_a_module_returns_passes() -> None:
    answer = {"changed": True, "msg": "done", "rc": 0, "paths": ["/etc/x"], "previous": ""}
    assert check_answer(answer, RETURNS) == answer


@pytest.mark.parametrize(
    "diff",
    [
        pytest.param({"before": "a", "after": "b"}, id="texts"),
        pytest.param(
            [{"before_header": "/etc/x", "after_header": "/etc/x", "before": "", "after": "b"}], id="of files"
        ),
        pytest.param({"before": {"path": "/etc/x"}, "after": {"path": "/etc/x", "state": "link"}}, id="properties"),
        pytest.param({"prepared": "The following NEW packages will be installed"}, id="of apt"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_diff_passes_in_every_form_that_ansible_prints(diff: object) -> None:
    assert check_answer({"diff": diff}, None) == {"diff": diff}


def test_what_ansible_prints_is_text() -> None:
    hostile = "a\x1b]0;owned\x07\n\tb\u202e\x9b31m"
    found = check_answer(
        {"msg": hostile, "stderr": hostile, "diff": [{"before": hostile, "after": {hostile: [hostile]}}]}, None
    )
    shown = "a\\x1b]0;owned\\x07\n\tb\\u202e\\x9b31m"
    assert (found["msg"], found["stderr"], found["diff"][0]["before"]) == (shown, shown, shown)
    assert all(key.isprintable() for key in found["diff"][0]["after"])


def test_texts_lose_what_they_were_tagged_with() -> None:
    found = check_answer({"paths": [Tagged("{{ x }}")], Tagged("previous"): Tagged("y")}, RETURNS)
    assert (type(found["paths"][0]), type(found["previous"])) == (str, str)


def test_what_ansible_adds_is_left_out() -> None:
    added = {"invocation": {}, "warnings": ["x"], "deprecations": [], "_ansible_parsed": True, "stdout_lines": ["x"]}
    assert check_answer({"changed": False, **added}, RETURNS) == {"changed": False}


def test_the_interpreter_that_ansible_found_stays_with_its_host() -> None:
    facts = {"discovered_interpreter_python": "/usr/bin/python3.13"}
    assert check_answer({"ansible_facts": facts}, RETURNS) == {"ansible_facts": facts}


def test_long_output_keeps_its_end() -> None:
    found = check_answer({"stdout": "x" * 100_000 + "end"}, None)
    assert len(found["stdout"]) < 100_000
    assert found["stdout"].endswith("end")


def test_further_keys_of_foreign_modules_are_left_out() -> None:
    assert check_answer({"changed": True, "cache_updated": False, "status": {}}, None) == {"changed": True}


def nested(depth: int) -> dict[str, Any]:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return {"diff": {"before": value}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param([], "not a mapping", id="a list"),
        pytest.param({"changed": 1}, "its changed is int, not bool", id="a number for a flag"),
        pytest.param({"rc": True}, "its rc is bool, not int", id="a flag for a number"),
        pytest.param({"rc": 2**70}, "out of range", id="a huge number"),
        pytest.param({"msg": ["x"]}, "its msg is list, not str", id="a list for a message"),
        pytest.param({"paths": "x"}, "its paths is str, not list", id="a text for a list"),
        pytest.param({"diff": {"after": 1}}, "its diff is malformed", id="a diff of numbers"),
        pytest.param({"diff": "x"}, "its diff is malformed", id="a diff of text"),
        pytest.param({"paths": [b"x"]}, "unknown type: bytes", id="bytes"),
        pytest.param({"paths": [float("inf")]}, "out of range", id="infinity"),
        pytest.param({"paths": ["\ud800"]}, "not UTF-8", id="half a surrogate pair"),
        pytest.param({"paths": [{1: "x"}]}, "a key that is not text", id="a number for a key"),
        pytest.param({"other": 1}, "does not return: 'other'", id="an unknown key"),
        pytest.param({1: 1}, "does not return: '1'", id="a key that is no text"),
        pytest.param({"ansible_facts": {"grapnel_plan": {}}}, "was not asked for: 'grapnel_plan'", id="a fact"),
        pytest.param({"ansible_facts": [1]}, "not a mapping", id="facts in a list"),
        pytest.param(
            {"ansible_facts": {"discovered_interpreter_python": "/bin/sh -c id"}}, "not a path", id="a command"
        ),
        pytest.param(nested(MAX_DEPTH), "nested deeper", id="deep"),
        pytest.param({"paths": [0] * MAX_VALUES}, "more than", id="many values"),
        pytest.param({"paths": ["x" * MAX_CHARACTERS, "y"]}, "more than", id="much text"),
    ],
)
def test_what_no_module_returns_is_refused(answer: object, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason):
        check_answer(answer, RETURNS)


@pytest.mark.parametrize("key", ["ansible_stats", "add_host", "add_group", "results", "unreachable", "ansible_job_id"])
@pytest.mark.parametrize("returns", [RETURNS, None], ids=["of ours", "of others"])
def test_orders_to_ansible_are_refused_whatever_the_module(key: str, returns: dict[str, type] | None) -> None:
    with pytest.raises(AnswerError, match=key):
        check_answer({key: {}}, returns)


@pytest.mark.slow
@given(st.dictionaries(KEYS, JSON), st.sampled_from([RETURNS, None]))
def test_whatever_is_answered_either_passes_as_plain_json_or_is_refused(
    answer: dict[str, Any], returns: dict[str, type] | None
) -> None:
    try:
        found = check_answer(answer, returns)
    except AnswerError:
        return
    known = {"changed", "failed", "skipped", "msg", "rc", "diff", "stdout", "stderr", "module_stdout", "module_stderr"}
    assert set(found) <= known | {"ansible_facts"} | set(returns or ())
    json.dumps(found, allow_nan=False).encode()


def actions() -> list[str]:
    return sorted(path.stem for path in (ROOT / "playbooks/plugins/action").glob("*.py"))


@pytest.mark.parametrize("name", actions())
def test_an_action_lets_pass_what_its_module_documents(name: str) -> None:
    plugins = "ansible_collections.grapnel.node.plugins"
    documented = yaml.safe_load(getattr(import_module(f"{plugins}.modules.{name}"), "RETURN", "") or "{}") or {}
    returns = getattr(import_module(f"{plugins}.action.{name}").ActionModule, "RETURNS", None)
    if returns is not None:  # else it runs here, and returns nothing of a node's
        assert set(documented) <= set(returns)
