"""Docker's one file: our runtime goes in, everything else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.render.docker import WRAPPER_PATH, render_docker
from provision.render.errors import EngineConfigError

OURS = {"nvidia": {"path": WRAPPER_PATH}}


def render(main: str | None, version: str = "20.10.24") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_docker(main=main, handler="nvidia", engine_version=version))
    return document


@pytest.mark.parametrize("main", [None, "", " \n", "{}"])
def test_a_node_without_a_configuration_gets_one(main: str | None) -> None:
    assert render(main) == {"runtimes": OURS}


def test_keys_of_others_stay_as_they_are_and_where_they_are() -> None:
    main = {
        "log-opts": {"max-size": "10m"},
        "runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2"}},
        "features": {"containerd-snapshotter": True, "buildkit": False},
        "default-runtime": "kata",
        "größe": 1.5,
    }
    rendered = render_docker(main=json.dumps(main), handler="nvidia", engine_version="26.1.5")
    tree = json.loads(rendered)

    assert tree == {
        **main,
        "runtimes": {**main["runtimes"], **OURS},  # type: ignore[dict-item] # a test's tree
        "features": {"cdi": True, **main["features"]},  # type: ignore[dict-item]
    }
    assert list(tree) == list(main)
    assert "größe" in rendered


@pytest.mark.parametrize(
    ("version", "features"),
    [("20.10.24", None), ("24.0.7", None), ("25.0.0", {"cdi": True}), ("28.5.2", {"cdi": True}), ("", None)],
)
def test_devices_by_name_are_switched_on_where_docker_has_them(version: str, features: dict[str, bool] | None) -> None:
    assert render("{}", version).get("features") == features


def test_who_switched_them_off_keeps_them_off() -> None:
    assert render('{"features": {"cdi": false}}', "26.1.5")["features"] == {"cdi": False}


@pytest.mark.parametrize("version", ["20.10.24", "26.1.5"])
def test_a_second_rendering_changes_no_byte(version: str) -> None:
    first = render_docker(main='{"debug": true}', handler="nvidia", engine_version=version)
    compact = json.dumps(json.loads(first), separators=(",", ":"))
    for text in (first, compact):
        assert render_docker(main=text, handler="nvidia", engine_version=version) == text


@pytest.mark.parametrize(
    ("main", "words"),
    [
        pytest.param("{", "daemon.json: not JSON: expecting property name", id="half a file"),
        pytest.param("[]", "is not a JSON object", id="a list"),
        pytest.param('{"runtimes": []}', "daemon.json: runtimes is a list, not an object", id="a list of runtimes"),
        pytest.param('{"runtimes": {"nvidia": {"path": "/x"}}}', "grapnel did not create it", id="another runtime"),
        pytest.param('{"runtimes": {"nvidia": "runc"}}', "runtimes.nvidia is a string, not an object", id="no entry"),
    ],
)
def test_what_should_not_be_touched_is_named(main: str, words: str) -> None:
    with pytest.raises(EngineConfigError, match=words):
        render(main)


def test_nvidias_own_runtime_comes_with_its_remedy() -> None:
    main = '{"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}'
    with pytest.raises(EngineConfigError) as refusal:
        render(main)
    assert "uninstall NVIDIA's toolkit" in refusal.value.hint
