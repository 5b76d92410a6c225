"""What the settings come to, for the rest of the daemon. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.devices.allocation.answer import AnswerForm
from plugin.devices.health.model import Policy
from plugin.settings.nvidia.table import LABEL_FILE

if TYPE_CHECKING:
    from plugin.devices.naming import NamePattern
    from plugin.devices.sharing import ShareRule


@dataclass(frozen=True)
class LabelSettings:
    """How a node's labels are made, and where they are left.

    `file` None: nowhere. `is_file_wanted`: it was asked for, so that a missing folder is told. `is_on_node`: the
    Node itself gets them, where the Kubernetes API is known. `feature_namespace` is the NodeFeature object's, "" for
    none. `pause_s` is the time between two looks whether all is as it should be; None: labels are made once and stay
    when the daemon ends.
    """

    file: Path | None = Path(LABEL_FILE)
    is_file_wanted: bool = False
    pause_s: float | None = 60.0
    has_timestamp: bool = True
    machine_file: str = ""
    is_on_node: bool = True
    feature_namespace: str = ""


_POLICY, _LABELS = Policy(), LabelSettings()


@dataclass(frozen=True)
class ByLabel:
    """A folder of files, how one of them is chosen, and the label's value; None: it was not heard yet."""

    folder: Path
    label: str
    default: str = ""
    fallbacks: tuple[str, ...] = ()
    value: str | None = None


@dataclass(frozen=True)
class DaemonSettings:
    """Decisions that `node.json` has no key for.

    `patterns` is empty where no resources are named: every GPU then is `resource` of node.json. `is_packed`: shares
    fill up a GPU before the next one is used. `mps_root` is the folder of control daemons of MPS, "" for our own.
    `driver_root` is where this process finds the driver's files.
    `policy` says which XID errors count; its quiet time is node.json's. `by_label` is how the file of these decisions
    was chosen, None where there is nothing to choose from.
    """

    patterns: tuple[NamePattern, ...] = ()
    mig_strategy: str = "none"
    mig_patterns: tuple[NamePattern, ...] = ()
    shares: tuple[ShareRule, ...] = ()
    is_packed: bool = False
    mps_root: str = ""
    answers: AnswerForm = field(default_factory=AnswerForm)
    ends_without_driver: bool = False
    driver_root: Path = Path("/")
    policy: Policy = _POLICY
    labels: LabelSettings = _LABELS
    by_label: ByLabel | None = None
