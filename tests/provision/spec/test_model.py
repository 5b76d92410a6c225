"""The model's limits, its defaults, and the file that is made from it."""

from __future__ import annotations

import json

import msgspec
import pytest

from provision.declaration.spec.load import SPEC
from provision.declaration.spec.model import API_VERSION, KIND, GpuStack, StackSpec
from provision.declaration.spec.template import render_template
from provision.declaration.spec.text.document import read_document
from provision.declaration.spec.text.excerpt import render_findings
from provision.declaration.spec.validate import convert, examine, nearest


def complaints(key: str, value: object) -> list[str]:
    """Return what is said about one value below spec, in messages only."""
    *sections, last = key.split(".")
    content: dict[str, object] = {last: value}
    for section in reversed(sections):
        content = {section: content}
    document = read_document(b"x: 1", "x.yaml")
    return [each.message for each in examine(content, StackSpec, document)]


PUBLIC_KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----
Comment: a mirror

mDMEZQAAABYJKwYBBAHaRw8BAQdA
=AAAA
-----END PGP PUBLIC KEY BLOCK-----
"""
ACCEPTED: list[tuple[str, object]] = [
    ("driver.version", "550.163.01"),
    ("driver.version", "390.157"),
    ("driver.version", None),
    ("driver.branch", "550"),
    ("driver.companions", []),
    ("driver.companions", None),
    ("driver.moduleParameters", {"NVreg_EnableMSI": 1, "NVreg_RegistryDwords": "A=0x1;B=2"}),
    ("driver.signing", {"key": "/root/module.key", "certificate": "/root/module.der"}),
    ("driver.repository.url", "https://mirror.example.com"),
    ("driver.repository.url", "https://[2001:db8::1]:8443/cuda/repos/rhel9/x86_64/"),
    ("driver.repository.url", "file:///srv/mirror"),
    ("driver.repository.folder", "/srv/bundle"),
    ("driver.repository.key", PUBLIC_KEY),
    ("driver.repository.key", PUBLIC_KEY.removesuffix("\n")),
    ("driver.builder", "build_1.example.com"),
    ("runtime.handler", "n"),
    ("runtime.handler", "nvidia-cdi-2"),
    ("plugin.resource", "gpu.example.co.uk/a100_80G.x"),
    ("plugin.interface", "devicePlugin"),
    ("plugin.interface", "dra"),
    ("plugin.kubeletRoot", "/data/k0s/kubelet.d"),
    ("plugin.metricsAddress", None),
    ("plugin.metricsAddress", "[::]:65535"),
    ("plugin.metricsAddress", "127.0.0.1:9400"),
    ("plugin.memoryLimits", "required"),
    ("plugin.labels", "nodeFeature"),
    ("plugin.nodeFeatureNamespace", "nfd"),
    ("plugin.memoryOveruse", "evict"),
    ("plugin.overuseGraceSeconds", 86400),
    ("plugin.kubernetesApi", None),
    ("plugin.kubernetesApi", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    ("node.labels", {"a": "", "example.com/x_y": "A.1"}),
    ("rollout.maxUnavailable", 3),
    ("rollout.maxUnavailable", "100%"),
]
REFUSED: list[tuple[str, object]] = [
    ("driver.version", "550"),
    ("driver.version", "550.163.1"),
    ("driver.version", "v550.163.01"),
    ("driver.version", "550.163.01\n"),
    ("driver.version", ""),
    ("driver.branch", "550.163"),
    ("driver.branch", "50"),
    ("driver.branch", "550\n"),
    ("driver.companions", ["nscq", "nscq"]),
    ("driver.moduleParameters", {"NVreg_": "1"}),
    ("driver.moduleParameters", {"nvreg_EnableMSI": "1"}),
    ("driver.moduleParameters", {"NVreg_A b": "1"}),
    ("driver.moduleParameters", {"NVreg_A": ""}),
    ("driver.moduleParameters", {"NVreg_A": "1\ninstall nvidia /bin/sh"}),
    ("driver.moduleParameters", {"NVreg_A": '"1"'}),
    ("driver.moduleParameters", {"NVreg_A": "\\"}),
    ("driver.moduleParameters", {"NVreg_A": "#"}),
    ("driver.moduleParameters", {"NVreg_A": "1" * 256}),
    ("driver.moduleParameters", {"NVreg_A": None}),
    ("driver.moduleParameters", {"NVreg_A": 4_294_967_296}),
    ("driver.signing", {"key": "/root/module.key"}),
    ("driver.signing", {"key": "module.key", "certificate": "/root/module.der"}),
    ("driver.repository.url", "http://mirror.example.com/cuda"),
    ("driver.repository.url", "ftp://mirror.example.com/cuda"),
    ("driver.repository.url", "https://"),
    ("driver.repository.url", "https:///cuda"),
    ("driver.repository.url", "https://user@mirror.example.com/cuda"),
    ("driver.repository.url", "https://user:password@mirror.example.com/cuda"),
    ("driver.repository.url", "https://mirror.example.com/cuda?token=1"),
    ("driver.repository.url", "https://mirror.example.com/cuda#a"),
    ("driver.repository.url", "https://mirror.example.com/$releasever"),
    ("driver.repository.url", "https://mirror.example.com/a b"),
    ("driver.repository.url", "https://mirror.example.com/a\nb"),
    ("driver.repository.url", "https://mirror.example.com/../cuda"),
    ("driver.repository.url", "file://server/share"),
    ("driver.repository.url", "file:///"),
    ("driver.repository.folder", "srv/bundle"),
    ("driver.repository.folder", "/srv/../bundle"),
    ("driver.repository.key", "/srv/mirror.asc"),
    ("driver.repository.key", PUBLIC_KEY.replace("PUBLIC", "PRIVATE")),
    ("driver.repository.key", PUBLIC_KEY + PUBLIC_KEY),
    ("driver.repository.key", PUBLIC_KEY.replace("mDME", "mDM$")),
    ("driver.builder", "-o"),
    ("driver.builder", "a/b"),
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
    ("key", "value"),
    [
        ("url", "https://user:hunter2@mirror.example.com/cuda"),
        ("url", "https://user:hunter2@{{ mirror }}/cuda"),
        ("key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----"),
    ],
)
def test_what_may_be_a_secret_is_in_no_message_and_no_excerpt(key: str, value: str) -> None:
    text = f"driver: {{repository: {{{key}: {json.dumps(value)}}}}}"
    document = read_document(text.encode(), "x.yaml")
    findings = examine(document.content, StackSpec, document)
    assert findings
    assert "hunter2" not in render_findings(findings)


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
