"""A real kubelet judges settings before they are written, and is not started for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import find_changes, parse_files
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import Place
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.rehearsal import refusal, unknown_flag
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

from lab import golang
from provision.declaration.spec.model import Kubelet
from provision.declaration.spec.validate import convert
from provision.planning.render.kubelet import declared_settings, render_drop_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.functional

MAIN = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
"""
EVERYTHING = {
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "strict-cpu-reservation": "true"},
    "reservedSystemCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
    "systemReserved": {"memory": "512Mi", "ephemeral-storage": "1Gi"},
    "kubeReserved": {"memory": "512Mi", "pid": "1000"},
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "5%"},
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    kubelet = golang.kubernetes(say=lambda _: None) / "kubelet"
    main, folder = tmp_path / "config.yaml", tmp_path / "conf.d"
    main.write_text(MAIN)
    folder.mkdir()
    return Place(program=str(kubelet), config=str(main), config_dir=str(folder))


def judged(place: Place, content: str) -> str:
    """Return what the kubelet has against our file in its folder."""
    given = {"path": f"{place.config_dir}/99-grapnel.conf", "content": content, "mode": "0644"}
    return refusal(Host(), place, find_changes(Host(), parse_files([given])))


def test_everything_that_can_be_declared_is_accepted(place: Place) -> None:
    settings = declared_settings(convert(EVERYTHING, Kubelet))

    assert settings == EVERYTHING
    assert judged(place, render_drop_in(settings)) == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (render_drop_in({"topologyManagerPolicy": "numa"}), "topologyManagerPolicy"),
        (render_drop_in({"reservedSystemCPUs": "x"}), "reservedSystemCPUs"),
        (render_drop_in({"topologyManagerScope": "node"}), "topologyManagerScope"),
        ("kind: [", "config"),
    ],
    ids=["an unknown policy", "no list of CPUs", "an unknown scope", "no YAML"],
)
def test_what_the_kubelet_would_not_start_with_is_refused_in_its_own_words(
    place: Place, content: str, words: str
) -> None:
    assert words in judged(place, content)


def test_a_real_kubelet_names_the_flag_that_it_does_not_know_and_takes_all_others(place: Place) -> None:
    known = (("config", place.config), ("config-dir", place.config_dir), ("fail-swap-on", ""), ("v", "2"))
    assert unknown_flag(Host(), replace(place, flags=known)) == ""
    assert (
        unknown_flag(Host(), replace(place, flags=(*known, ("docker-endpoint", "/x"), ("v", "4")))) == "docker-endpoint"
    )
    assert unknown_flag(Host(), replace(place, flags=(*known, ("gone", "")))) == "gone"
