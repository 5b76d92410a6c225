"""The model's limits, its defaults, and the file that is made from it."""

from __future__ import annotations

import msgspec
import pytest

from provision.spec.document import read_document
from provision.spec.load import SPEC
from provision.spec.model import API_VERSION, KIND, GpuStack, StackSpec
from provision.spec.template import render_template
from provision.spec.validate import convert, examine, nearest


def complaints(key: str, value: object) -> list[str]:
    """Return what is said about one value below spec, in messages only."""
    *sections, last = key.split(".")
    content: dict[str, object] = {last: value}
    for section in reversed(sections):
        content = {section: content}
    document = read_document(b"x: 1", "x.yaml")
    return [each.message for each in examine(content, StackSpec, document)]


ACCEPTED = [
    ("driver.version", "550.163.01"),
    ("driver.version", "390.157"),
    ("driver.version", None),
    ("runtime.handler", "n"),
    ("runtime.handler", "nvidia-cdi-2"),
    ("plugin.resource", "gpu.example.co.uk/a100_80G.x"),
    ("plugin.kubeletRoot", "/data/k0s/kubelet.d"),
    ("plugin.metricsAddress", None),
    ("plugin.metricsAddress", "[::]:65535"),
    ("plugin.metricsAddress", "127.0.0.1:9400"),
    ("plugin.kubernetesApi", None),
    ("plugin.kubernetesApi", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    ("node.labels", {"a": "", "example.com/x_y": "A.1"}),
    ("rollout.maxUnavailable", 3),
    ("rollout.maxUnavailable", "100%"),
]
REFUSED = [
    ("driver.version", "550"),
    ("driver.version", "550.163.1"),
    ("driver.version", "v550.163.01"),
    ("driver.version", "550.163.01\n"),
    ("driver.version", ""),
    ("runtime.handler", "-nvidia"),
    ("runtime.handler", "a" * 64),
    ("plugin.resource", "nvidia/gpu"),
    ("plugin.resource", "nvidia.com/"),
    ("plugin.kubeletRoot", "/"),
    ("plugin.kubeletRoot", "/var/lib/kubelet/"),
    ("plugin.kubeletRoot", "/var/./lib"),
    ("plugin.kubeletRoot", "/var lib"),
    ("plugin.metricsAddress", ""),
    ("plugin.metricsAddress", "9400"),
    ("plugin.metricsAddress", "0.0.0.0:0"),
    ("plugin.metricsAddress", "0.0.0.0:65536"),
    ("plugin.metricsAddress", "10.0.0.7:9400"),
    ("plugin.kubernetesApi", ""),
    ("plugin.kubernetesApi", "in-cluster"),
    ("plugin.kubernetesApi", "/etc/../kubelet.conf"),
    ("node.labels", {"a/b/c": "x"}),
    ("node.labels", {"a": "x" * 64}),
    ("rollout.maxUnavailable", 0),
    ("rollout.maxUnavailable", "0%"),
    ("rollout.maxUnavailable", "101%"),
    ("rollout.soakMinutes", -1),
    ("tenancy.namespaces", ["a", "a"]),
]


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_accepted_values(key: str, value: object) -> None:
    assert complaints(key, value) == []


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused_values_are_told_once(key: str, value: object) -> None:
    assert len(complaints(key, value)) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param("{{ version }}", "'{{ version }}' is a template", id="Jinja"),
        pytest.param({"__ansible_vault": "x"}, "is encrypted or tagged for Ansible", id="vault"),
        pytest.param({"__ansible_unsafe": "550.163.01"}, "is encrypted or tagged for Ansible", id="unsafe"),
    ],
)
def test_what_only_ansible_could_read_is_refused_in_plain_words(value: object, message: str) -> None:
    assert complaints("driver.version", value) == [message]


def test_defaults_satisfy_the_models_own_limits() -> None:
    """Because msgspec does not check defaults."""
    content = msgspec.json.decode(msgspec.json.encode(StackSpec()))
    assert examine(content, StackSpec, read_document(b"x: 1", "x.yaml")) == []
    assert convert(content, StackSpec) == StackSpec()


def test_the_file_that_init_writes_says_the_defaults_and_nothing_else() -> None:
    document = read_document(render_template().encode(), "grapnel.yaml")
    assert examine(document.content, GpuStack, document) == []
    assert convert(document.content, GpuStack) == GpuStack(api_version=API_VERSION, kind=KIND, spec=StackSpec())


def test_the_file_that_init_writes_holds_every_key_with_a_comment() -> None:
    document = read_document(render_template().encode(), "grapnel.yaml")
    spec = msgspec.to_builtins(StackSpec())
    keys = {(*SPEC, section, key) for section, content in spec.items() for key in content}
    assert keys <= document.keys.keys()
    for path in keys:
        line = document.keys[path].line
        assert document.lines[line - 2].strip().startswith("# ")


def test_sections_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        StackSpec().driver.hold = False  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize(
    ("word", "found"),
    [("verzion", "version"), ("KERNELMODULE", "kernelModule"), ("kernel_module", "kernelModule"), ("xyz", None)],
)
def test_nearest_spelling(word: str, found: str | None) -> None:
    assert nearest(word, ["version", "kernelModule", "hold"]) == found
