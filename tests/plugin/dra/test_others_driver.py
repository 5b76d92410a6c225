"""The driver of other devices says why claims cannot be given them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from plugin.base.log import Logger
from plugin.dra.others import driver as module
from plugin.dra.store import Published
from plugin.settings.node_config import DRA, NodeConfig
from tests.plugin.dra.test_others_given_twice import Registration, Slices

if TYPE_CHECKING:
    from pathlib import Path

WHY = "nothing keeps this pod's account from slices of other nodes"


class Refused(Slices):
    """Stands for who writes slices, and may not."""

    is_settled, problem = False, WHY


def test_it_says_what_keeps_its_slices_from_being_written(tmp_path: Path) -> None:
    """Where a node has no GPU, nobody else says it."""

    async def problem() -> str:
        unused: Any = None
        driver = module.OtherDriver(
            NodeConfig(state_folder=tmp_path, cdi_folder=tmp_path / "cdi", interface=DRA),
            Published("", "n1"),
            Logger(),
            environment={},
            view=unused,
            prepared=unused,
            changed=unused,
        )
        said = driver.problem(is_offered=True)
        await driver.close()
        return said

    with patch.object(module, "SliceKeeper", Refused), patch.object(module, "Registration", Registration):
        assert WHY in asyncio.run(problem())
