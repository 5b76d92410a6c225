"""Docker's one file: our runtime goes in, everything else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provision.planning.engines.docker import WRAPPER_PATH, render_docker
from provision.planning.render.errors import EngineConfigError

OURS = {"nvidia": {"path": WRAPPER_PATH}}


def render(main: str | None, version: str = "20.10.24") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_docker(main=main, handlers=("nvidia",), engine_version=version))
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
    rendered = render_docker(main=json.dumps(main), handlers=("nvidia",), engine_version="26.1.5")
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
    [
        ("20.10.24", None),
        ("23.0.6", None),
        ("24.0.7", None),
        ("25.0.0", {"cdi": True}),
        ("26.1.5", {"cdi": True}),
        ("27.5.1", {"cdi": True}),
        ("28.1.1", {"cdi": True}),
        ("28.2.0", None),  # it has them on
        ("29.0.0", None),
        ("", None),
    ],
)
def test_devices_by_name_are_switched_on_where_docker_has_them(version: str, features: dict[str, bool] | None) -> None:
    assert render("{}", version).get("features") == features


def test_who_switched_them_off_keeps_them_off() -> None:
    assert render('{"features": {"cdi": false}}', "26.1.5")["features"] == {"cdi": False}


@pytest.mark.parametrize("version", ["20.10.24", "26.1.5"])
def test_a_second_rendering_changes_no_byte(version: str) -> None:
    first = render_docker(main='{"debug": true}', handlers=("nvidia",), engine_version=version)
    compact = json.dumps(json.loads(first), separators=(",", ":"))
    for text in (first, compact):
        assert render_docker(main=text, handlers=("nvidia",), engine_version=version) == text


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


# What people have: kubeadm's page, NVIDIA's runtime removed, Docker's page on CDI, RHEL and Ubuntu's packages.
FOUND: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "20.10 as kubeadm wanted it": (
        "20.10.24",
        {
            "exec-opts": ["native.cgroupdriver=systemd"],
            "log-driver": "json-file",
            "log-opts": {"max-size": "100m"},
            "storage-driver": "overlay2",
        },
        {},
    ),
    "23 with another default runtime": (
        "23.0.6",
        {"default-runtime": "crun", "runtimes": {"crun": {"path": "/usr/bin/crun"}}},
        {"runtimes": {"crun": {"path": "/usr/bin/crun"}, **OURS}},
    ),
    "26 with CDI as its page says": (
        "26.1.5",
        {"features": {"cdi": True}, "cdi-spec-dirs": ["/etc/cdi/", "/var/run/cdi"]},
        {},
    ),
    "27 with CDI files in one folder alone": (
        "27.5.1",
        {"cdi-spec-dirs": ["/etc/cdi"]},
        {"features": {"cdi": True}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]},
    ),
    "28.2 with what an earlier release of ours wrote": (
        "28.2.2",
        {"runtimes": OURS, "features": {"cdi": True}},
        {},
    ),
    "29 with images in containerd": (
        "29.1.0",
        {"features": {"containerd-snapshotter": True}, "min-api-version": "1.24"},
        {},
    ),
    "29 with CDI off": ("29.1.0", {"features": {"cdi": False}}, {}),
}


@pytest.mark.parametrize(("version", "main", "changed"), FOUND.values(), ids=FOUND)
def test_of_a_configuration_that_people_have_nothing_else_changes(
    version: str, main: dict[str, Any], changed: dict[str, Any]
) -> None:
    wanted = {**main, "runtimes": {**main.get("runtimes", {}), **OURS}, **changed}
    if (25,) <= tuple(map(int, version.split("."))) < (28, 2):
        wanted["features"] = {"cdi": True}

    assert render(json.dumps(main), version) == wanted


def test_every_name_of_the_handler_is_a_runtime() -> None:
    text = render_docker(main="{}", handlers=("nvidia", "nvidia-legacy"), engine_version="29.1.0")

    assert json.loads(text) == {"runtimes": {name: {"path": WRAPPER_PATH} for name in ("nvidia", "nvidia-legacy")}}
