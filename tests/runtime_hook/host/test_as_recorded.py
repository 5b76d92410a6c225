"""The hook's lists beside what NVIDIA's toolkit mounted on a real machine (`recorded/`)."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from runtime_hook.host.driverfiles import BINARY_NAMES, CONFIGS, LIBRARY_STEMS, OWN_VERSION_STEMS

RECORD = json.loads(
    (Path(__file__).parents[1] / "recorded/toolkit-1.20.1-h100-580.159.04.json").read_text(encoding="utf-8")
)
STEMS = {*chain(*LIBRARY_STEMS.values()), *chain(*OWN_VERSION_STEMS.values())}
PROGRAMS = {*chain(*BINARY_NAMES.values())}
SETTINGS = {f"{folder}/{name}" for folder, name in chain(*CONFIGS.values())}


def is_known(path: str) -> bool:
    name = path.rpartition("/")[2]
    if path.endswith(f"/nvidia/{RECORD['driver']}/{name}"):
        return name.startswith("gsp") and name.endswith(".bin")  # as `files.find_files` looks for firmware
    return name.partition(".so.")[0] in STEMS if ".so." in name else name in PROGRAMS or path in SETTINGS


@pytest.mark.parametrize("path", RECORD["mounts"])
def test_what_the_toolkit_mounts_is_on_our_lists(path: str) -> None:
    assert is_known(path)
