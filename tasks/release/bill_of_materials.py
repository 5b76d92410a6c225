"""Writes the software bill of materials of a release: CycloneDX 1.6, from the pinned requirements.

Two compositions: what the controller's environment gets, and what travels to nodes in the daemon's archive.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_PIN = re.compile(r"(?m)^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
_FILES = {"controller": "provision.txt", "node": "node.txt"}


@dataclass(frozen=True)
class Pin:
    """A distribution with the digests of all files that may be installed for it."""

    name: str
    version: str
    digests: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL, the name as PyPI normalizes it."""
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def read_pins(text: str) -> tuple[Pin, ...]:
    """Return what a requirements file pins."""
    starts = list(_PIN.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return tuple(
        Pin(match["name"], match["version"], tuple(_HASH.findall(text[match.end() : end])))
        for match, end in zip(starts, ends, strict=True)
    )


def render_constraints(requirements: Path) -> str:
    """Return the versions of the controller's distributions, for `--constraints` of installers.

    No digests: with one of them, pip would demand a digest for grapnel's own wheel, too.
    """
    pins = read_pins((requirements / _FILES["controller"]).read_text(encoding="utf-8"))
    return "".join(f"{pin.name}=={pin.version}\n" for pin in pins)


def render_bill(version: str, requirements: Path) -> str:
    """Return the document; the same requirements always give the same one."""
    parts: dict[str, tuple[Pin, ...]] = {
        part: read_pins((requirements / name).read_text(encoding="utf-8")) for part, name in _FILES.items()
    }
    pins = {pin.purl: pin for each in parts.values() for pin in each}
    product = f"pkg:pypi/grapnel@{version}"
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("application", "grapnel", version, product, ("Apache-2.0",))},
        "components": [_of_pin(pin, parts) for _purl, pin in sorted(pins.items())],
        "dependencies": [{"ref": product, "dependsOn": sorted(pins)}],
    }
    return json.dumps(document, indent=1) + "\n"


def _of_pin(pin: Pin, parts: dict[str, tuple[Pin, ...]]) -> dict[str, Any]:
    places = [{"name": "grapnel:part", "value": part} for part, pins in parts.items() if pin in pins]
    component = _component("library", pin.name, pin.version, pin.purl, ())
    # CycloneDX 1.6 has one digest of a kind for a component, and a distribution has a file for each platform.
    files = [
        {"type": "distribution", "url": pin.purl, "hashes": [{"alg": "SHA-256", "content": each}]}
        for each in pin.digests
    ]
    return {**component, "externalReferences": files, "properties": places}


def _component(kind: str, name: str, version: str, purl: str, licences: tuple[str, ...]) -> dict[str, Any]:
    licensed = {"licenses": [{"license": {"id": each}} for each in licences]} if licences else {}
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **licensed}
