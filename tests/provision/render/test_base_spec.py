"""The base specification next to what `ctr oci spec` of real containerds prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.planning.render.engines.base_spec import base_spec, render_base_spec

DATA = Path(__file__).parent / "data"


def without(spec: dict[str, Any], *paths: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for path in paths:
        *parents, last = path.split(".")
        table = copy
        for parent in parents:
            table = table[parent]
        table.pop(last, None)
    return copy


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.4.2"])
def test_it_is_containerd_s_own_but_for_what_is_said(version: str) -> None:
    real = json.loads(DATA.joinpath(f"ctr-oci-spec-{version}.json").read_text())
    ours = base_spec(hook_timeout_s=30)
    # What the newest hides is hidden in older ones as well, which costs nothing.
    newest = json.loads(DATA.joinpath("ctr-oci-spec-2.4.2.json").read_text())["linux"]["maskedPaths"]
    assert set(real["linux"]["maskedPaths"]) <= set(newest)
    real["linux"]["maskedPaths"] = newest

    removed = ("ociVersion", "process.rlimits", "linux.cgroupsPath", "hooks")

    assert without(ours, *removed) == without(real, *removed)
    assert "rlimits" not in ours["process"]
    assert "cgroupsPath" not in ours["linux"]


def test_the_hook_has_an_environment_and_a_time_limit_of_its_own() -> None:
    (hook,) = base_spec(hook_timeout_s=30)["hooks"]["prestart"]

    assert hook == {
        "path": "/usr/lib/grapnel/hook/grapnel-hook",
        "args": ["grapnel-hook", "prestart"],
        "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"],
        "timeout": 45,
    }


def test_the_text_is_the_tree() -> None:
    text = render_base_spec(hook_timeout_s=30)

    assert json.loads(text) == base_spec(hook_timeout_s=30)
    assert text.endswith("}\n")
