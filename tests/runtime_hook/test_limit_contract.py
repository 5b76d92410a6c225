"""Samples of the exchange between hook and daemon, read by both: contract `docs/contracts/memory-limit`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from plugin.base.log import Logger
from plugin.driver.telemetry import GroupMemory
from plugin.sharing.memory_limits.keeper import LimitKeeper
from plugin.system.thread_calls import ThreadCalls
from runtime_hook.base.errors import LimitError
from runtime_hook.container.memorylimit import limit_memory
from runtime_hook.inputs.bundle import OciState
from tests.runtime_hook.answering import answering

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTRACT = Path(__file__).parents[2] / "docs/contracts/memory-limit"
GOOD, BAD = (sorted(CONTRACT.glob(f"{kind}/*.json")) for kind in ("good", "bad"))
# Neither can be said in the schema's words.
STRICTER = {"group-of-the-whole-pod", "group-of-another-container", "group-made-by-the-container", "gpu-twice"}
POLICIES = {"switched-off": "off", "cgroup-v1": "required"}


class Anything:
    """Every amount was given, and a driver takes every limit: what is refused is refused for its own sake."""

    async def find(self, memory: Mapping[str, int]) -> Mapping[str, int]:
        return memory

    def set_limit(self, uuid: str, group: str, limit_bytes: int) -> None:
        """Do nothing."""

    def read_group(self, _uuid: str, _group: str) -> GroupMemory:
        return GroupMemory(None, 0)


def load(path: Path) -> dict[str, Any]:
    sample: dict[str, Any] = json.loads(path.read_text())
    return sample


def ask_daemon(folder: Path, request: dict[str, Any], policy: str) -> dict[str, Any]:
    """Return what the daemon answers where every group exists."""
    (folder / "cgroup.controllers").touch()
    group = Path(os.path.normpath(f"{folder}{request['cgroup']}"))
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").touch()
    keeper = LimitKeeper(
        allocations=Anything(),
        calls=ThreadCalls(lambda function: function()),
        policy=lambda: policy,
        logger=Logger(),
        driver=Anything(),
        root=folder,
    )
    return asyncio.run(keeper.answer(request))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_follow_the_schema(path: Path) -> None:
    jsonschema.validate(load(path), json.loads((CONTRACT / "schema.json").read_text()))


@pytest.mark.parametrize("path", [path for path in BAD if path.stem not in STRICTER], ids=lambda path: path.stem)
def test_bad_samples_do_not(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(load(path), json.loads((CONTRACT / "schema.json").read_text()))


@pytest.mark.parametrize("path", [path for path in GOOD if path.stem != "an-older-driver"], ids=lambda path: path.stem)
def test_the_daemon_answers_good_requests_as_they_say(path: Path, tmp_path: Path) -> None:
    sample = load(path)
    policy = POLICIES.get(path.stem, "required" if sample["answer"]["required"] else "preferred")
    assert ask_daemon(tmp_path, sample["request"], policy) == sample["answer"]


@pytest.mark.parametrize("path", [path for path in BAD if "answer" not in path.stem], ids=lambda path: path.stem)
def test_the_daemon_sets_nothing_for_bad_requests(path: Path, tmp_path: Path) -> None:
    answer = ask_daemon(tmp_path, load(path)["request"], "required")
    assert answer.get("result") != "set"
    assert answer.get("error") or (answer["reason"] and answer["required"])


@pytest.mark.parametrize("path", [*GOOD, *(path for path in BAD if "answer" in path.stem)], ids=lambda path: path.stem)
def test_the_hook_takes_good_answers_and_no_others(path: Path, tmp_path: Path) -> None:
    sample, socket = load(path), tmp_path / "node.sock"
    is_fine = path in GOOD and (sample["answer"]["result"] != "not set" or not sample["answer"]["required"])
    state = OciState(id=sample["request"]["container"], pid=os.getpid(), bundle="/")
    with answering(socket, json.dumps(sample["answer"]).encode() + b"\n") as heard:
        if is_fine:
            assert limit_memory(str(socket), state, sample["request"]["memory"])
        else:
            with pytest.raises(LimitError):
                limit_memory(str(socket), state, sample["request"]["memory"])
    asked = json.loads(heard[0])
    assert set(asked) == set(sample["request"])
    assert {**asked, "cgroup": ""} == {**sample["request"], "cgroup": ""}
