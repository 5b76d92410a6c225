"""The rules across keys that the API server itself holds a GpuStack to, in CEL.

All rules are `provision.declaration.spec.rules.every` and `local_keys`, which the controller judges by. Those that are
here, too, are refused before they are stored: people see them at once, from whatever tool they apply with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from provision.declaration.spec.model import Engine


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a section, by its keys from the spec on; "[]" is an entry of a list."""

    section: tuple[str, ...]
    rule: str
    message: str
    field: str = ""

    def render(self) -> dict[str, Any]:
        """Return it as an entry of x-kubernetes-validations."""
        return {"rule": self.rule, "message": self.message} | ({"fieldPath": self.field} if self.field else {})


NAME_RULE: Final = Rule(
    (), "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", "metadata.name is one DNS label"
)
_IS_ON: Final = "(!has(self.enabled) || self.enabled)"
_INSTALLS: Final = "(!has(self.source) || self.source != 'none')"
_NOT_HERE: Final = "lies on an operator's machine, and a cluster has none"
_NO_GROUPS: Final = "a cluster has no groups of an inventory"

RULES: Final = (
    Rule((), "has(self.driver)", "driver.version or driver.branch is required, or driver.enabled: false", ".driver"),
    Rule(
        ("driver",),
        f"!{_IS_ON} || !(has(self.version) && has(self.branch))",
        "version and branch cannot stand beside one another: version is exact, branch follows the newest version",
        ".branch",
    ),
    Rule(
        ("driver",),
        f"!{_IS_ON} || !{_INSTALLS} || has(self.version) || has(self.branch)",
        "version or branch is required while the driver is enabled",
        ".version",
    ),
    Rule(
        ("driver",),
        "!has(self.source) || self.source != 'bundle'",
        f"source bundle: it {_NOT_HERE}; declare source: nvidia with the url of a repository",
        ".source",
    ),
    Rule(("driver", "repository"), "!has(self.folder)", f"folder {_NOT_HERE}: declare a url", ".folder"),
    Rule(("driver", "runfile"), "!has(self.path)", f"path {_NOT_HERE}: declare a url", ".path"),
    *(
        Rule(
            ("runtime",),
            f"!has(self.engine) || self.engine != '{engine.value}' || "
            "(has(self.entitlement) && self.entitlement == 'env')",
            f"{engine.value} does not work with a kubelet: write entitlement: env",
            ".entitlement",
        )
        for engine in Engine
        if not engine.works_with_kubelet
    ),
    Rule(("mig",), "!has(self.configFile)", f"configFile {_NOT_HERE}: write the layouts into config", ".configFile"),
    Rule(
        ("scheduler",),
        "(!has(self.kind) || self.kind in ['auto', 'kubernetes']) && !has(self.slurm) && !has(self.commands)",
        "nodes of other schedulers are upgraded by `grapnel apply`",
    ),
    Rule(("rollout", "waves", "[]"), "!has(self.groups) || size(self.groups) == 0", _NO_GROUPS, ".groups"),
    Rule(("rollout", "domains"), "!has(self.groups) || size(self.groups) == 0", f"{_NO_GROUPS}: write nodeLabel"),
    Rule(("rollout", "zones"), "!has(self.groups) || size(self.groups) == 0", f"{_NO_GROUPS}: write nodeLabel"),
)
