"""What is known of a spec with errors: rules are judged by that, and never by what a wrong key might have said."""

from __future__ import annotations

from typing import Any

import pytest

from provision.declaration.spec.known_part import as_far_as_known, known_part
from provision.declaration.spec.model import StackSpec
from provision.declaration.spec.rules.every import judge
from provision.declaration.spec.text.document import UNREADABLE, Document
from provision.declaration.spec.text.findings import Severity, dotted
from provision.declaration.spec.validate import examine


def errors(spec: dict[str, Any], *strays: str) -> list[str]:
    """Return the keys of the rules that are not kept, as far as a spec with errors is known."""
    wrong = {each.key for each in examine(spec, StackSpec, Document("x", []))}
    known = known_part(spec, wrong, prefix=(), strays=strays)
    assert known is not None
    return [dotted(each.path) for each in judge(known) if each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"driver": {"version": 550}}, [], id="a version of a wrong type is not missing"),
        pytest.param({"driver": {"verzion": "550.163.01"}}, [], id="one under a wrong name is not missing"),
        pytest.param({"driver": {}, "plugin": {"version": "550.163.01"}}, [], id="nor one in another section"),
        pytest.param({"drivers": {"version": "550.163.01"}}, [], id="nor a section under a wrong name"),
        pytest.param({"driver": {"version": UNREADABLE}}, [], id="nor what could not be read"),
        pytest.param({"driver": 5}, [], id="a section that is no mapping"),
        pytest.param(
            {"driver": 5, "runtime": {"engine": "podman"}}, ["runtime.entitlement"], id="a rule of other sections"
        ),
        pytest.param(
            {"driver": {"version": "550.163.01", "branch": "550", "adopt": 5}},
            ["driver.branch"],
            id="a rule of other keys of the section",
        ),
        pytest.param(
            {"driver": {"enabled": False}, "rollout": {"waves": [{}, 5]}},
            [],
            id="a list with an entry that is wrong",
        ),
        pytest.param(
            {
                "driver": {"enabled": False},
                "tenancy": {"tenants": [{"namespace": "a", "queue": 5}, {"namespace": "b", "queue": "none"}]},
            },
            ["tenancy.tenants[1].queue"],
            id="entries beside one that is wrong in part",
        ),
        pytest.param({"driver": {"enabled": False}, "mig": {"layout": "x", "configfile": "y"}}, [], id="a stray key"),
    ],
)
def test_rules_are_judged_by_what_is_known(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors(spec) == expected


def test_a_section_beside_the_spec_is_not_missing_in_it() -> None:
    assert errors({}, "driver") == []


def test_nothing_is_known_of_what_is_no_mapping() -> None:
    assert known_part(5, {"spec"}, prefix=("spec",)) is None


def test_defaults_that_all_declarations_share_stay_whole() -> None:
    """Values are taken away from structs, and those of the model's defaults are everybody's."""
    assert errors({"driver": {}, "runtime": {"branch": "550"}, "plugin": None}) == []
    assert judge(StackSpec()) != []
    assert StackSpec().driver.branch is None
    assert StackSpec().plugin.enabled


def test_an_error_of_a_rule_itself_is_not_swallowed() -> None:
    def rule() -> list[object]:
        return [StackSpec().nothing]  # type: ignore[attr-defined]  # that is the point

    with pytest.raises(AttributeError):
        list(as_far_as_known(rule))
