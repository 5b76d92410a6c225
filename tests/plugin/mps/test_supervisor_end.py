"""Sharing that ends: stops, releases, GPUs that are gone, modes that are given back."""

from __future__ import annotations

import os
import signal
import time

import pytest

from plugin.base.errors import InvalidRequest
from plugin.sharing.mps.compute_mode import DEFAULT, EXCLUSIVE_PROCESS, PROHIBITED
from plugin.sharing.mps.plan import MpsPlan
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import Daemon, Node, live, until

pytestmark = pytest.mark.slow
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


def test_a_stop_without_clients_leaves_nothing_behind(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        await daemon.supervisor.close(60)

    live(node, act)
    assert not node.runs(spec)
    assert node.modes.modes == {FIRST: DEFAULT}
    assert not spec.earlier_mode.exists()


def test_sharing_that_ends_waits_for_the_last_client(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        client = node.connect(daemon.supervisor, FIRST)
        assert daemon.supervisor.ending(FIRST) == ""
        daemon.supervisor.want(MpsPlan(node.root))
        with pytest.raises(InvalidRequest):
            daemon.supervisor.answer([FIRST])
        words = f"its MPS server ends when its clients have ended: 1, as process {client.process.pid}"
        await daemon.down(FIRST, words)
        assert await daemon.supervisor.ended(0) == (f"{FIRST}: {words}",)
        assert daemon.supervisor.ending(FIRST) == words
        assert node.runs(spec)
        client.end()
        assert await daemon.supervisor.ended(60) == ()
        assert daemon.supervisor.ending(FIRST) == ""
        assert daemon.supervisor.problem(FIRST) == "it is not to be shared through MPS"

    live(node, act)
    assert not node.runs(spec)
    assert node.modes.modes == {FIRST: DEFAULT}


def test_a_gpu_is_still_shared_from_the_moment_that_it_is_not_to_be(node: Node) -> None:
    """Whoever is to have it next asks at once."""

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        daemon.supervisor.want(MpsPlan(node.root))
        assert daemon.supervisor.ending(FIRST)
        assert await daemon.supervisor.ended(60) == ()
        assert daemon.supervisor.ending(FIRST) == ""

    live(node, act)


def test_sharing_that_is_wanted_again_meanwhile_goes_on(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.connect(daemon.supervisor, FIRST)
        pid = node.pid(spec)
        daemon.supervisor.want(MpsPlan(node.root))
        await daemon.down(FIRST, "when its clients have ended")
        await daemon.share(node.plan(), FIRST)
        assert node.pid(spec) == pid

    live(node, act)


def test_a_release_ends_the_servers_and_asks_the_driver_nothing(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        client = node.connect(daemon.supervisor, FIRST)
        node.modes.silent = True
        daemon.supervisor.release()
        assert len(await daemon.supervisor.ended(0.5)) == 1
        client.end()
        assert await daemon.supervisor.ended(60) == ()
        assert not node.runs(spec)
        node.modes.silent, node.modes.modes = False, {}  # another driver
        await daemon.share(node.plan(), FIRST)
        daemon.supervisor.want(MpsPlan(node.root))
        await daemon.supervisor.ended(60)

    live(node, act)
    assert node.modes.modes == {FIRST: DEFAULT}


def test_what_an_earlier_process_left_of_gpus_that_are_not_shared_any_more_is_ended(node: Node) -> None:
    first, second = node.plan(2).daemons

    async def before(daemon: Daemon) -> None:
        await daemon.share(node.plan(2), FIRST, SECOND)

    async def after(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan())
        await until(lambda: not node.runs(second))
        await until(lambda: not second.earlier_mode.exists())
        await daemon.up(FIRST)

    live(node, before)
    live(node, after)
    assert node.runs(first)
    assert node.modes.modes == {FIRST: EXCLUSIVE_PROCESS, SECOND: DEFAULT}


def test_a_gpu_that_has_gone_is_not_asked_for_ever(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.modes.silent = True
        daemon.supervisor.want(MpsPlan(node.root))
        assert await daemon.supervisor.ended(60) == ()

    live(node, act)
    assert not node.runs(spec)
    assert spec.earlier_mode.exists()  # for the next process


def test_a_stop_does_not_wait_for_one_that_hangs(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        os.kill(node.pid(spec), signal.SIGSTOP)
        before_s = time.monotonic()
        await daemon.supervisor.close(0.5)
        assert time.monotonic() - before_s < 5  # its answer is waited for 10 s

    live(node, act, answer_s=10)
    assert node.pid(spec)


def test_a_mode_that_was_never_given_back_is_given_back_by_the_next_process(node: Node) -> None:
    (spec,) = node.plan().daemons
    spec.folder.mkdir(parents=True)
    spec.earlier_mode.write_text(f"{DEFAULT}\n")
    node.modes.modes = {FIRST: EXCLUSIVE_PROCESS}

    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(MpsPlan(node.root))
        await until(lambda: not spec.earlier_mode.exists())

    live(node, act)
    assert node.modes.modes == {FIRST: DEFAULT}


def test_another_root_takes_over_when_the_last_client_of_the_old_one_has_gone(node: Node) -> None:
    (old,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        client = node.connect(daemon.supervisor, FIRST)
        node.root = node.root.with_name("other")
        daemon.supervisor.want(node.plan())
        await daemon.down(FIRST, "when its clients have ended")
        assert node.runs(old)
        client.end()
        await daemon.up(FIRST)
        assert node.runs(node.plan().daemons[0])
        daemon.supervisor.want(MpsPlan(node.root))
        assert await daemon.supervisor.ended(60) == ()

    live(node, act)
    assert not node.runs(old)
    assert node.modes.modes == {FIRST: DEFAULT}


def test_a_mode_that_a_reset_took_is_set_again(node: Node) -> None:
    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.modes.modes = {}
        await until(lambda: node.modes.modes == {FIRST: EXCLUSIVE_PROCESS})

    live(node, act, mode_s=0)


def test_a_mode_that_somebody_chose_against_sharing_stays(node: Node) -> None:
    node.modes.modes = {FIRST: PROHIBITED}

    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan())
        await daemon.down(FIRST, "its compute mode is PROHIBITED, which somebody has set")
        node.modes.modes = {}
        await daemon.up(FIRST)

    live(node, act)
