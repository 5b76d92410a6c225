"""What the settings come to, for the rest of the daemon. Pure values."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.answer import AnswerForm
from plugin.values import dataclass

if TYPE_CHECKING:
    from plugin.settings.naming import NamePattern


@dataclass(frozen=True)
class DaemonSettings:
    """Decisions that `node.json` has no key for.

    `patterns` is empty where nobody names resources: every GPU then is `resource` of node.json. `holds_back_mig`:
    GPUs with MIG devices are not offered whole. `driver_root` is where this process finds the driver's files.
    """

    patterns: tuple[NamePattern, ...] = ()
    holds_back_mig: bool = False
    answers: AnswerForm = field(default_factory=AnswerForm)
    ends_without_driver: bool = False
    driver_root: Path = Path("/")
