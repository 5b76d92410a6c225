"""Secure Boot itself: what grapnel says of a module beforehand and at the swap, beside what the kernel does with it.

Real: UEFI firmware with keys made here, Debian's signed kernel, its lockdown and `finit_module`. The modules have the
names and the version of NVIDIA's and do nothing.
"""

from __future__ import annotations

import errno
import json
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import microvm
from provision.declaration.fleet.facts.driver import SecureBoot
from tests.provision.driver.preflight.situations import RUNNING, SIGNED, found, make_change, make_node
from tests.provision.samples import replace
from tests.runtime_hook.containers import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.functional, pytest.mark.timeout(900)]  # an emulated processor, on a busy machine

GUEST = REPOSITORY / "tests/playbooks/driver/secureguest.py"
COLLECTION = "collection/ansible_collections/grapnel/node/plugins/module_utils"
OWNER = "Site: modules"
# Who signs each candidate: the file of a key, and the name on its certificate.
SIGNERS = {"enrolled": OWNER, "stranger": "Somebody else", "namesake": OWNER}
NOT_SIGNED = "unsigned"
REFUSED = (NOT_SIGNED, "stranger", "namesake")
FINDINGS = {
    NOT_SIGNED: "module-unsigned",
    "stranger": "signing-key-not-enrolled",
    "namesake": "signing-key-not-enrolled",
}
LOGS = {
    NOT_SIGNED: "Loading of unsigned module is rejected",
    "stranger": "Loading of module with unavailable key is rejected",
    "namesake": "Loading of module with unavailable key is rejected",
}


def make_key(folder: Path, name: str, subject: str) -> str:
    """Make a key and its certificate; return the identifier that the kernel lists it with."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.der"
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}", "-days", "3650"),
        *("-keyout", str(key), "-outform", "DER", "-out", str(certificate)),
    )
    openssl("x509", "-inform", "DER", "-in", str(certificate), "-out", str(folder / f"{name}.pem"))
    shown = openssl("x509", "-in", str(folder / f"{name}.pem"), "-noout", "-ext", "subjectKeyIdentifier")
    return shown.split()[-1].replace(":", "").lower()


def openssl(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True, text=True).stdout


def sign(module: Path, folder: Path, name: str) -> None:
    """Append what the kernel's sign-file does."""
    signature = folder / "signature"
    openssl(
        *("cms", "-sign", "-binary", "-noattr", "-nocerts", "-md", "sha256", "-in", str(module)),
        *("-signer", str(folder / f"{name}.pem"), "-inkey", str(folder / f"{name}.key")),
        *("-outform", "DER", "-out", str(signature)),
    )
    made = signature.read_bytes()
    end = struct.pack(">BBBBB3xI", 0, 0, 2, 0, 0, len(made)) + b"~Module signature appended~\n"
    module.write_bytes(module.read_bytes() + made + end)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was said in the virtual machine: `facts`, and each candidate's by its name."""
    folder = tmp_path_factory.mktemp("microvm")
    given, keys = folder / "given", folder / "keys"
    keys.mkdir()
    system = microvm.ensure()
    secure_boot = microvm.ensure_secure_boot(system)
    key_ids = {name: make_key(keys, name, subject) for name, subject in SIGNERS.items()}
    for name in (*SIGNERS, NOT_SIGNED):
        candidate = given / "candidates" / name
        candidate.mkdir(parents=True)
        (candidate / "key_id").write_text(key_ids.get(name, ""))
        for module in secure_boot.modules.glob("nvidia*.ko"):
            shutil.copy(module, candidate)
            if name != NOT_SIGNED:
                sign(candidate / module.name, keys, name)
    shutil.copy(secure_boot.modules / "efivarfs.ko", given)
    shutil.copy(GUEST, given / "guest.py")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "playbooks/plugins/module_utils", given / COLLECTION, ignore=ignored)
    console = microvm.boot(
        system,
        given,
        "python3 /guest.py",
        timeout_s=600.0,
        security="apparmor",
        secure_boot=secure_boot,
        enrolled=(keys / "enrolled.der",),
    )
    results = [json.loads(line[7:]) for line in console.splitlines() if line.startswith("RESULT ")]
    facts = [json.loads(line[6:]) for line in console.splitlines() if line.startswith("FACTS ")]
    assert len(results) == len(SIGNERS) + 1, console
    return {one["name"]: one for one in results} | {"facts": facts[0], "key_ids": key_ids, "console": console}


def findings_of(said: dict[str, Any], name: str) -> set[str]:
    """Return the codes that a plan has for a node with these facts and this module on its disk."""
    (module,) = [one for one in said[name]["modules"] if one["version"] == SIGNED.version]
    kernel = replace(RUNNING, modules=(replace(SIGNED, signer=module["signer"]),))
    facts = {key: said["facts"][key] for key in ("enabled", "enforced", "lockdown")}
    secure_boot = SecureBoot(**facts, enrolled=tuple(said["facts"]["enrolled"]))
    codes = found(make_node(secure_boot=secure_boot, kernels=(kernel,)), make_change())
    return {code for code in codes if "sign" in code}


def test_the_facts_are_what_firmware_and_kernel_are(said: dict[str, Any]) -> None:
    facts = said["facts"]
    assert (facts["enabled"], facts["enforced"], facts["lockdown"]) == (True, True, "integrity"), said["console"]
    assert "Kernel is locked down from EFI Secure Boot" in facts["log"]
    assert f"{OWNER}: {said['key_ids']['enrolled']}" in facts["enrolled"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_kernel_refuses_is_refused_beforehand_with_the_reason(said: dict[str, Any], name: str) -> None:
    one = said[name]
    assert (one["errno"], one["loaded"], one["left"]) == (errno.EKEYREJECTED, None, []), said["console"]
    assert LOGS[name] in one["log"]
    assert one["judged"].startswith(f"{FINDINGS[name]}: "), one
    assert "Key was rejected by service" in one["complaint"]


@pytest.mark.parametrize(("name", "reason"), [(NOT_SIGNED, "is not signed"), ("stranger", "does not have the cert")])
def test_plan_and_swap_tell_what_is_not_signed_from_who_is_not_known(
    said: dict[str, Any], name: str, reason: str
) -> None:
    assert findings_of(said, name) == {FINDINGS[name]}
    assert reason in said[name]["complaint"]


def test_what_an_enrolled_key_signed_is_loaded_and_unloaded_as_was_said(said: dict[str, Any]) -> None:
    one = said["enrolled"]
    assert findings_of(said, "enrolled") == set()
    assert (one["judged"], one["errno"], one["complaint"]) == ("", 0, ""), said["console"]
    assert (one["loaded"], one["left"]) == (SIGNED.version, [])
