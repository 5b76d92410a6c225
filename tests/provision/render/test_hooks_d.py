"""The hook file: what is started, and when: never too seldom, whatever the author of a pod writes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from provision.planning.engines.containerd.base_spec import base_spec
from provision.planning.engines.table import find_engine
from provision.planning.render.hook_config import HOOK_TIMEOUT_S
from tests.provision.samples import make_facts, make_stack

KUBELET = {"runtime": {"engine": "crio"}}
RULES = {"tenancy": {"namespaces": ["training"]}}
HANDLER, ALLOCATION = {"grapnel.dev/handler": "nvidia"}, {"grapnel.dev/allocation": "GPU-1"}


def render(**sections: Any) -> dict[str, Any]:
    stack = make_stack(**sections)
    (file,) = find_engine(make_facts(), stack.runtime.engine).own_files(stack)
    document: dict[str, Any] = json.loads(file.content)
    return document


def matches(when: dict[str, Any], annotations: dict[str, str]) -> bool:
    """Tell what Podman and CRI-O say (``when.go``): all conditions hold, each by any annotation."""
    if "always" in when:
        return bool(when["always"])
    return all(
        any(re.search(key, name) and re.search(value, text) for name, text in annotations.items())
        for key, value in when["annotations"].items()
    )


def test_the_hook_is_the_one_of_the_base_specification() -> None:
    document = render(**KUBELET)

    assert [document["hook"]] == base_spec(hook_timeout_s=HOOK_TIMEOUT_S)["hooks"]["prestart"]
    assert (document["version"], document["stages"]) == ("1.0.0", ["prestart"])


@pytest.mark.parametrize(
    ("sections", "annotations", "is_started"),
    [
        pytest.param(KUBELET, HANDLER | ALLOCATION, True, id="a GPU in a pod of the handler"),
        pytest.param(KUBELET, HANDLER, False, id="no GPU in a pod of the handler"),
        pytest.param(KUBELET, ALLOCATION, False, id="a GPU in a pod of another handler"),
        pytest.param(KUBELET, {}, False, id="neither"),
        pytest.param(
            KUBELET,
            {"grapnel.dev/handler": "", "grapnel.dev/allocation": ""},
            True,
            id="a GPU, and the pod empties both annotations",
        ),
        pytest.param(
            KUBELET, HANDLER | {"x.grapnel.dev/allocation": "a", "grapnel-dev/allocation": "a"}, False, id="like ours"
        ),
        pytest.param(KUBELET | {"plugin": {"enabled": False}}, HANDLER, True, id="another device plugin's GPU"),
        pytest.param(KUBELET | RULES, ALLOCATION, True, id="rules: a GPU in a pod of another handler"),
        pytest.param(KUBELET | RULES, HANDLER, False, id="rules: no GPU"),
        pytest.param(KUBELET | RULES | {"plugin": {"enabled": False}}, {}, True, id="rules, another device plugin"),
        pytest.param(
            {"runtime": {"engine": "crio", "entitlement": "env"}}, HANDLER, True, id="environment under CRI-O"
        ),
        pytest.param({"runtime": {"engine": "podman", "entitlement": "env"}}, {}, True, id="environment under Podman"),
    ],
)
def test_it_starts_for(sections: dict[str, Any], annotations: dict[str, str], is_started: bool) -> None:  # noqa: FBT001 - a table's column
    assert matches(render(**sections)["when"], annotations) is is_started
