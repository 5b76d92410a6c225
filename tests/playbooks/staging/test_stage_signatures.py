"""Modules are signed as declared, and none is staged that the kernel would refuse."""

from __future__ import annotations

import json

import pytest

from tests.playbooks.staging.node import KERNEL, Node, change_of
from tests.playbooks.staging.sets import staged

SIGN = {"key": "/etc/keys/mok.key", "certificate": "/etc/keys/mok.der"}


def put_key(node: Node, *, mode: int = 0o600) -> None:
    node.write(SIGN["key"], "PRIVATE KEY").chmod(mode)


def enforce(node: Node, *certificates: str) -> None:
    """Let the kernel accept modules only of certificates, as /proc/keys lists them."""
    node.write("/sys/module/module/parameters/sig_enforce", "Y\n")
    lines = (
        f"0a1b2c3d I------     1 perm 1f030000     0     0 asymmetri {one}: X509.rsa x []\n" for one in certificates
    )
    node.write("/proc/keys", "".join(lines))


def test_signing_asks_dkms_for_the_key_and_holds_it_to_that(node: Node) -> None:
    put_key(node)
    change = change_of(sign=SIGN)

    refused = node.stage(change)
    node.signer = "Operations"
    done = node.stage(change)

    assert [one.code for one in refused.findings] == ["module-unfit"]
    assert "signed by DKMS module signing key, not by Operations" in refused.findings[0].message
    assert done.complete
    build = next(words for words in node.calls if "build" in words)
    assert {"mok_signing_key=/etc/keys/mok.key", "mok_certificate=/etc/keys/mok.der"} <= set(build)


@pytest.mark.parametrize(
    ("mode", "words"),
    [(None, "/etc/keys/mok.key is not there"), (0o640, "/etc/keys/mok.key can be used by others than root")],
)
def test_a_key_that_is_not_root_s_alone_is_found_before_anything_is_built(
    node: Node, mode: int | None, words: str
) -> None:
    if mode is not None:
        put_key(node, mode=mode)

    result = node.stage(change_of(sign=SIGN))

    assert [one.code for one in result.findings] == ["signing-key"]
    assert words in result.findings[0].message
    assert not any("build" in call for call in node.calls)


def test_a_certificate_that_the_kernel_lacks_is_found_before_anything_is_built(node: Node) -> None:
    put_key(node)
    enforce(node, "Debian Secure Boot CA: 6ccece7e", "Operations: ffff")

    result = node.stage(change_of(sign=SIGN))

    assert [one.code for one in result.findings] == ["signing-key-not-enrolled"]
    assert "does not have the certificate 'Operations'" in result.findings[0].message
    assert "mokutil --import" in result.findings[0].remedy
    assert not any("build" in call for call in node.calls)


def test_an_enrolled_certificate_is_known_by_its_key(node: Node) -> None:
    put_key(node)
    node.signer = "Operations"
    enforce(node, "Operations: 0a1b")

    folder = staged(node, change_of(sign=SIGN))

    said = json.loads(node.path(f"{folder}/signers.json").read_text())
    assert said == {KERNEL: [{"name": "Operations", "key_id": "0a1b"}]}


@pytest.mark.parametrize(("signer", "code"), [("", "module-unsigned"), ("Stranger", "signing-key-not-enrolled")])
def test_a_built_module_that_the_kernel_would_refuse_is_not_staged(node: Node, signer: str, code: str) -> None:
    enforce(node, "Debian Secure Boot CA: 6ccece7e")
    node.signer = signer

    result = node.stage(change_of())

    assert [one.code for one in result.findings] == [code]


def test_keys_that_cannot_be_listed_leave_a_warning(node: Node) -> None:
    node.write("/sys/module/module/parameters/sig_enforce", "Y\n")

    result = node.stage(change_of())

    assert result.complete
    assert [(one.code, one.severity) for one in result.findings] == [("signature-unknown", "warning")]
