"""The options of NVIDIA's device plugin on our command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from plugin.settings.nvidia.table import CONFIG_FILE_FLAG, SETTINGS

if TYPE_CHECKING:
    import argparse
    from types import SimpleNamespace

    from plugin.settings.load import Invocation

_TITLE = "options of NVIDIA's device plugin"
_WORDS = "each can be a variable or stand in a file, too: grapnel-node config --explain, docs/migrate.md"
_PREFIX = "nvidia "


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let a verb accept them."""
    group = parser.add_argument_group(_TITLE, _WORDS)
    group.add_argument(
        f"--{CONFIG_FILE_FLAG}", dest=_PREFIX + CONFIG_FILE_FLAG, metavar="FILE", help="a version: v1 file"
    )
    for setting in SETTINGS:
        if setting.flags:
            group.add_argument(
                *(f"--{flag}" for flag in setting.flags),
                dest=_PREFIX + setting.name,
                action="append" if setting.kind.is_list else "store",
                nargs="?" if setting.kind.is_switch else None,
                const="true" if setting.kind.is_switch else None,
                metavar="VALUE",
                help=setting.meaning,
            )


def invocation_of(arguments: argparse.Namespace | SimpleNamespace) -> Invocation:
    """Return what the command line and the environment of this process say."""
    from plugin.settings.load import Invocation

    flags = {
        CONFIG_FILE_FLAG: CONFIG_FILE_FLAG,
        **{setting.name: next(iter(setting.flags), "") for setting in SETTINGS},
    }
    found = {}
    for name, flag in flags.items():
        value = getattr(arguments, _PREFIX + name, None)
        if value is not None:
            found[name] = (f"--{flag}", ",".join(value) if isinstance(value, list) else str(value))
    return Invocation(arguments.config, found, os.environ)
