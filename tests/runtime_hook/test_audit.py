"""What a line of the log says."""

from __future__ import annotations

import pytest

from runtime_hook.audit import grant_fields, refusal_fields
from runtime_hook.base.errors import InjectionError, RequirementError
from runtime_hook.request.grant import Grant
from tests.runtime_hook.nodes import GPUS, MIG, uuid


@pytest.mark.parametrize(
    ("source", "refusal", "fields"),
    [
        pytest.param(
            "volume-mount",
            RequirementError("not met", "take another", "NVIDIA_REQUIRE_X: cuda>=99"),
            {"source": "volume-mount", "requirement": "NVIDIA_REQUIRE_X: cuda>=99", "reason": "not met (take another)"},
            id="a requirement",
        ),
        pytest.param(
            "annotation",
            InjectionError("line\nbreak"),
            {"source": "annotation", "requirement": "", "reason": "line?break"},
            id="an operation",
        ),
        pytest.param(
            "annotation",
            KeyError("x"),
            {"source": "annotation", "requirement": "", "reason": "internal error: KeyError: 'x'"},
            id="a bug refuses, too",
        ),
    ],
)
def test_a_refusal_is_told(source: str, refusal: Exception, fields: dict[str, str]) -> None:
    assert refusal_fields(source, refusal) == fields


def test_a_grant_is_told() -> None:
    given = Grant("environment", GPUS[:1], ("compute",), True, "odd", MIG[2:], ("nvidia-fs",), (7,))
    assert grant_fields(given, ("noted",)) == {
        "source": "environment",
        "gpus": f"{uuid(0)},MIG-{uuid(2)}/5/0",
        "capabilities": "compute",
        "extras": "nvidia-fs,imex7",
        "memory": "",
        "notes": "odd; noted",
    }
