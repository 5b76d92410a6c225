"""Describes a node's driver: version, source, flavour, packages, holds, parameters."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Capability
from provision.planning.draft.choose import Choosing
from provision.planning.draft.files import read_object
from provision.planning.draft.model import Plan, Section, Unsaid
from provision.planning.node_plan import Role
from provision.planning.products.table import GPU_OPERATOR
from provision.planning.render.hook_config import HOOK_CONFIG_PATH
from provision.planning.render.modprobe import OPTIONS_PATH

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts

_VERSION: Final = re.compile(r"(?<![0-9.])[1-9][0-9]{2}\.[0-9]{1,3}(?:\.[0-9]{2})?(?![0-9.])")
_PARAMETERS: Final = re.compile(r"^options +nvidia\S* +(.*)$", re.MULTILINE)
_IN_CONTAINER: Final = "/run/nvidia/driver/usr/bin/nvidia-smi"
_SOURCE_FILES: Final = (
    "/etc/apt/sources.list.d/grapnel-nvidia.sources",
    "/etc/yum.repos.d/grapnel-nvidia.repo",
    "/etc/zypp/repos.d/grapnel-nvidia.repo",
)
_KEY_FILES: Final = ("/etc/apt/keyrings/grapnel-nvidia.asc", "/etc/pki/rpm-gpg/RPM-GPG-KEY-grapnel-nvidia")
_URL: Final = re.compile(r"^(?:URIs: *|baseurl *= *)(\S+)", re.MULTILINE | re.IGNORECASE)
_CAPABILITIES: Final = (
    ("compute", "utility"),
    ("compute", "utility", "graphics"),
    ("compute", "utility", "video"),
    ("compute", "utility", "graphics", "video", "display"),
)


def describe_driver(facts: NodeFacts, plan: Plan) -> Section:
    """Return what can be said about a driver."""
    choosing = Choosing(facts, plan, "driver", Role.DRIVER)
    version, where = _version(facts)
    if not version:
        choosing.say("enabled", False, "no driver is on these nodes")
        return Section(tuple(choosing.said))
    choosing.say("version", version, where)
    if unsaid := _not_packages(facts, version):
        choosing.say("enabled", False, unsaid.message)
        return Section(tuple(choosing.said), (unsaid,))
    _say_repository(choosing)
    if parameters := _parameters(facts):
        choosing.say("moduleParameters", parameters, OPTIONS_PATH)
    choosing.say_best("source", ("distribution", "canonical", "nvidia"), "its packages are of that source")
    flavours = ("auto", *([facts.module.flavour] if facts.module.flavour in ("open", "proprietary") else []), "none")
    choosing.say_best(
        "kernelModule",
        flavours,
        "the flavour of the module that is there",
        reasons={"none": "no package of the module is there"},
    )
    _say_capabilities(choosing)
    choosing.say_best("companions", (None, ()), "no package of a companion is installed")
    choosing.say_best("hold", (True, False), "its packages are not held")
    is_ours = facts.driver.managed or facts.installed_digest("driver") is not None
    offers = choosing.settle(
        is_ours=is_ours, reason="grapnel's driver program is there, or it is as grapnel would have it"
    )
    return Section(tuple(choosing.said), (), offers)


def _version(facts: NodeFacts) -> tuple[str, str]:
    """Return the version of the driver that is there, and where that is seen; both are empty where none is."""
    if facts.module.version and _VERSION.fullmatch(facts.module.version):
        return facts.module.version, "the kernel module that is loaded"
    if facts.module.on_disk and _VERSION.fullmatch(facts.module.on_disk):
        return facts.module.on_disk, "the kernel module on disk"
    if facts.foreign_driver is not None and facts.foreign_driver.version:
        return facts.foreign_driver.version, "the files of a driver that no package owns"
    counted = Counter(
        found.group()
        for name, package in sorted(facts.packages.items())
        if "nvidia" in package.source and (found := _VERSION.search(package.version))
    )
    return (counted.most_common(1)[0][0], "most of the driver's packages") if counted else ("", "")


def _not_packages(facts: NodeFacts, version: str) -> Unsaid | None:
    """Return what is said of a driver that is none of a package manager's."""
    foreign = facts.foreign_driver
    if foreign is not None:
        what = "NVIDIA's installer put it there" if foreign.kind == "runfile" else "no package owns its files"
        return Unsaid(
            f"driver-{foreign.kind}",
            f"driver {version} is not managed: {what}",
            "docs/migrate/runfile.md says how it becomes packages",
        )
    if _IN_CONTAINER in facts.product_files:
        return Unsaid(
            "driver-container",
            f"driver {version} is not managed: a pod of {GPU_OPERATOR.name} loads it",
            f"{GPU_OPERATOR.page} says how it becomes packages of the node",
        )
    return None


def _say_repository(choosing: Choosing) -> None:
    texts = [choosing.facts.content(path) or "" for path in _SOURCE_FILES]
    url = next((found.group(1) for text in texts if (found := _URL.search(text))), None)
    key = next((text for path in _KEY_FILES if (text := choosing.facts.content(path))), None)
    if url is not None and key is not None:
        choosing.say("repository", {"url": url, "key": key}, "the package source that grapnel wrote")


def _say_capabilities(choosing: Choosing) -> None:
    known = read_object(choosing.facts.content(HOOK_CONFIG_PATH)).get("supportedDriverCapabilities")
    if isinstance(known, list):
        named = [each.value for each in Capability if each.value in known]
        if set(named) != set(_CAPABILITIES[0]):
            choosing.say("capabilities", named, HOOK_CONFIG_PATH)
    else:
        choosing.say_best("capabilities", _CAPABILITIES, "the driver's packages that are installed")


def _parameters(facts: NodeFacts) -> dict[str, str | int]:
    found = _PARAMETERS.search(facts.content(OPTIONS_PATH) or "")
    words = (word.partition("=") for word in found.group(1).split()) if found else ()
    return {name: int(value) if value.isdecimal() else value for name, _, value in words}
