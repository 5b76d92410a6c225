"""Control daemons as real processes: the lab's program, started by the lab's systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import stat

import pytest

from plugin.base.errors import DeviceNotReady, InvalidRequest
from plugin.sharing.mps.compute_mode import DEFAULT, EXCLUSIVE_PROCESS
from tests.plugin.fakes import gpu
from tests.plugin.mps.node import Daemon, Node, live, until

pytestmark = pytest.mark.slow
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


def test_a_gpu_can_be_shared_once_its_control_daemon_answers_with_its_limits(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan())
        assert daemon.supervisor.problem(FIRST) == "its MPS control daemon is being started"
        with pytest.raises(DeviceNotReady, match="is being started"):
            daemon.supervisor.answer([FIRST])
        await daemon.up(FIRST)
        assert daemon.supervisor.problems == {FIRST: ""}
        assert daemon.changes

    live(node, act)
    assert node.says(spec, "get_default_active_thread_percentage") == "25.0"
    assert node.says(spec, f"get_default_device_pinned_mem_limit {FIRST}") == "20G"
    assert node.modes.written == [(FIRST, EXCLUSIVE_PROCESS)]
    assert spec.earlier_mode.read_text() == f"{DEFAULT}\n"


def test_a_client_gets_a_share_whatever_its_environment_says(node: Node) -> None:
    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        client = node.connect(daemon.supervisor, FIRST, user=1000)
        assert client.said.endswith(f"threads 25 {FIRST}=20480M")

    live(node, act)


def test_the_unit_has_a_name_and_an_environment_of_its_own_and_believes_no_pid_file(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)

    live(node, act)
    *mounts, start = node.calls("systemd-run")
    assert [mount[-2:] for mount in mounts] == [["grapnel-mps", str(spec.shm)], ["grapnel-mps", str(spec.log)]]
    assert f"--unit=grapnel-mps-{FIRST}.service" in start
    assert not [word for word in start if "PIDFile" in word]
    assert f"--property=BindPaths={spec.shm}:/dev/shm" in start
    assert f"--setenv=CUDA_VISIBLE_DEVICES={FIRST}" in start
    assert start[-3:] == ["--", str(node.programs.control), "-d"]


def test_folders_let_a_server_of_any_user_in_and_are_written_by_nobody_else(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)

    live(node, act)
    for folder, mode in ((node.root, 0o711), (spec.folder, 0o711), (spec.pipe, 0o755), (spec.log, 0o700)):
        assert stat.S_IMODE(folder.stat().st_mode) == mode


def test_a_killed_control_daemon_takes_its_gpu_away_until_another_one_answers(node: Node) -> None:
    first, second = node.plan(2).daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(2), FIRST, SECOND)
        client, other = node.connect(daemon.supervisor, FIRST), node.pid(second)
        pid = node.pid(first)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(daemon.supervisor.problem(FIRST)))
        assert not daemon.supervisor.problem(SECOND)
        await daemon.up(FIRST)
        assert node.pid(first) != pid
        assert node.pid(second) == other
        assert node.says(first, "get_server_list") == ""  # the server went with it
        client.end()
        assert node.connect(daemon.supervisor, FIRST).said.startswith("server ")

    live(node, act, check_s=600)  # its end is seen at once, not at the next look


def test_one_that_hangs_is_ended_and_started_again_with_its_limits(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        pid = node.pid(spec)
        os.kill(pid, signal.SIGSTOP)
        await daemon.down(FIRST, "no answer within 1 s")
        await daemon.up(FIRST)
        assert node.pid(spec) != pid
        assert node.says(spec, "get_default_active_thread_percentage") == "25.0"

    live(node, act, answer_s=1, start_s=0)


def test_one_missed_answer_ends_nobody(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        pid = node.pid(spec)
        os.kill(pid, signal.SIGSTOP)
        await daemon.down(FIRST, "no answer within 1 s")
        os.kill(pid, signal.SIGCONT)
        await daemon.up(FIRST)
        assert node.pid(spec) == pid

    live(node, act, answer_s=1, start_s=0, misses=1000)


def test_limits_that_somebody_raised_are_set_again(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.connect(daemon.supervisor, FIRST)
        server = node.says(spec, "get_server_list")
        node.says(spec, "set_default_active_thread_percentage 100")
        node.says(spec, f"set_active_thread_percentage {server} 100")
        await until(lambda: node.says(spec, "get_default_active_thread_percentage") == "25.0")
        await until(lambda: node.says(spec, f"get_active_thread_percentage {server}") == "25.0")

    live(node, act)


def test_another_number_of_replicas_ends_nobody(node: Node) -> None:
    (spec,) = node.plan().daemons

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.connect(daemon.supervisor, FIRST)
        pid = node.pid(spec)
        await daemon.share(node.plan(replicas=8), FIRST)
        assert node.connect(daemon.supervisor, FIRST).said.endswith(f"threads 13 {FIRST}=10240M")
        assert node.pid(spec) == pid

    live(node, act)


def test_a_restart_of_the_daemon_finds_control_daemon_and_clients_again(node: Node) -> None:
    (spec,) = node.plan().daemons
    pids: list[int] = []

    async def before(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        node.connect(daemon.supervisor, FIRST)
        pids.append(node.pid(spec))
        await daemon.supervisor.close(60)

    async def after(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        assert node.pid(spec) == pids[0]
        assert node.says(spec, "get_device_client_list").split()[1] == str(node.clients[0].process.pid)

    live(node, before)
    assert node.runs(spec)
    live(node, after)
    assert node.modes.written == [(FIRST, EXCLUSIVE_PROCESS)]
    assert len([each for each in node.calls("systemd-run") if "-d" in each]) == 1


def test_a_killed_daemon_leaves_what_the_next_one_finds(node: Node) -> None:
    (spec,) = node.plan().daemons
    pids: list[int] = []

    async def act(daemon: Daemon) -> None:
        await daemon.share(node.plan(), FIRST)
        pids.append(node.pid(spec))

    for _ in range(3):
        live(node, act)
    assert len(set(pids)) == 1


def test_a_program_that_is_not_there_is_told_and_found_later(node: Node) -> None:
    away = node.programs.control.rename(node.programs.control.with_suffix(".away"))

    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan())
        await daemon.down(FIRST, "nvidia-cuda-mps-control is not installed")
        away.rename(node.programs.control)
        await daemon.up(FIRST)

    live(node, act)


def test_a_gpu_that_cannot_be_shared_says_why_and_starts_nothing(node: Node) -> None:
    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan(replicas=49))
        assert "room for 48 clients" in daemon.supervisor.problem(FIRST)
        assert daemon.supervisor.problem(SECOND) == "it is not to be shared through MPS"
        with pytest.raises(InvalidRequest, match="room for 48 clients"):
            daemon.supervisor.answer([FIRST])

    live(node, act)


def test_the_event_loop_is_not_held_up(node: Node) -> None:
    async def act(daemon: Daemon) -> None:
        daemon.supervisor.want(node.plan(2))
        turns = 0
        while any(daemon.supervisor.problems.values()):
            await asyncio.sleep(0)
            turns += 1
        assert turns > 100

    live(node, act)
