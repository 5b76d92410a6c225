"""What the bench of the controller makes, plays, counts and draws."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from bench.fleets import objects, peer
from bench.fleets.curves import PICTURES, draw
from bench.fleets.figures import JobCosts, Rates, Rolled, Size, allowed_mib, job_lines, lines, quantile, verdict
from bench.fleets.kubelets import Agents, stages
from bench.fleets.lead import Counting
from bench.fleets.machines import Machines
from bench.fleets.requests import count, parse_requests
from provision.apply.runner import RunFinished, RunRequest, RunStatus, TaskDone, TaskOutcome
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, Stream
from provision.controller.jobs.manifest import JobKind, render_secret
from provision.controller.jobs.seal import Seal
from provision.controller.jobs.wire import LineReader, request_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Server:
    """Answers requests of an Api in memory, and remembers them."""

    name = "server"

    def __init__(self, answer: Callable[[Request], dict[str, Any]]) -> None:
        self._answer = answer
        self.asked: list[Request] = []

    def send(self, request: Request) -> ApiResponse:
        self.asked.append(request)
        return ApiResponse(code=200, body=json.dumps(self._answer(request)).encode(), headers={})

    def stream(self, request: Request) -> Stream:
        self.asked.append(request)
        return Stream(code=200, headers={}, lines=iter([b"12345", b"678"]), close=lambda: None, release=lambda: None)


def pages(request: Request) -> dict[str, Any]:
    """Answer every list in two pages."""
    is_last = "continue" in request.query
    return {"items": [{}, {}], "metadata": {} if is_last else {"continue": "more"}}


def size(nodes: int, **more: Any) -> Size:
    given: dict[str, Any] = {
        "nodes": nodes,
        "pods": 4 * nodes,
        "played_by": "KWOK",
        "player_mib": 60.0,
        "player_cpu_s": 1.0,
        "created_s": 2.0,
        "looked_at_s": 3.0,
        "looked_at_cpu_s": 1.0,
        "idle": Rates(requests=6, megabytes=0.1, server_cpu_s=0.1, cpu_s=0.1),
        "idle_server_cpu_s": 1.0,
        "memory_idle": 70.0,
        "memory_peak": 90.0,
        "noticed": (0.1, 0.2, 0.4),
        "requests_for_a_change": 1.5,
        "rolled": Rolled(seconds=60, failed=nodes // 20, cpu_s=10, requests=11 * nodes, server_cpu_s=20),
        "peer": Rates(requests=5, megabytes=nodes / 100, server_cpu_s=1),
        "server_mib": 800.0,
        **more,
    }
    return Size(**given)


def test_a_node_is_as_large_as_a_real_one() -> None:
    names = objects.names_of(21)
    assert [name for name in names if objects.is_faulty(name)] == ["n00000", "n00020"]
    found = objects.node(names[1], 10250)
    assert 12_000 < len(json.dumps(found)) < 30_000
    assert len(found["status"]["images"]) == objects.IMAGES


def test_the_first_pod_of_a_node_has_a_gpu() -> None:
    first, second = objects.pod("n00001", 0), objects.pod("n00001", 1)
    assert objects.GPU in first["spec"]["containers"][0]["resources"]["limits"]
    assert objects.GPU not in second["spec"]["containers"][0]["resources"]["limits"]
    assert {first["spec"]["nodeName"], second["spec"]["nodeName"]} == {"n00001"}


def run(machines: Machines, playbook: str, node: str, **variables: object) -> list[TaskDone]:
    request = RunRequest(playbook=Path(f"{playbook}.yml"), inventory=(), nodes=(node,), extra_vars=variables)
    *events, end = machines.run(request, None)  # type: ignore[arg-type]  # it is never canceled
    assert isinstance(end, RunFinished)
    done = [event for event in events if isinstance(event, TaskDone)]
    assert (end.status is RunStatus.SUCCESSFUL) is all(each.outcome is TaskOutcome.OK for each in done)
    return done


def test_machines_take_a_driver_and_some_never_the_new_one() -> None:
    looked: list[str] = []
    machines = Machines(looked=looked.append)
    swap = {"items": [{"target": objects.NEW}]}
    assert run(machines, "apply", "n00001", grapnel_plan=swap)[0].outcome is TaskOutcome.OK
    assert run(machines, "apply", "n00020", grapnel_plan=swap)[0].outcome is TaskOutcome.FAILED
    assert (
        run(machines, "apply", "n00020", grapnel_plan={"items": [{"target": objects.OLD}]})[0].outcome is TaskOutcome.OK
    )
    for node, driver in (("n00001", objects.NEW), ("n00020", objects.OLD)):
        facts = json.loads(run(machines, "facts", node)[0].values["facts"])
        assert facts["packages"]["driver"]["version"] == driver
    assert looked == ["n00001", "n00020"]


def test_only_pods_of_jobs_end_by_themselves() -> None:
    found = {stage["metadata"]["name"]: stage["spec"] for stage in yaml.safe_load_all(yaml.safe_dump_all(stages()))}
    assert {spec["resourceRef"]["kind"] for spec in found.values()} == {"Node", "Pod"}
    keys = {name: [each["key"] for each in spec["selector"]["matchExpressions"]] for name, spec in found.items()}
    assert [name for name in keys if ".metadata.ownerReferences.[].kind" in keys[name]] == ["end"]
    assert sum(found["heartbeat"]["delay"].values()) // 2 == pytest.approx(300_000, rel=0.01)


class _EveryKey(frozenset[str]):
    def __contains__(self, _key: object) -> bool:
        return True


EVERY_KEY = _EveryKey()


def test_the_log_of_a_job_has_what_its_machine_answers_and_only_what_is_kept() -> None:
    request = RunRequest(
        playbook=Path("facts.yml"), inventory=(), nodes=("n00001",), keep=frozenset({"facts"}), timeout_s=60
    )
    seal = Seal.fresh("0f6a")
    data = render_secret(JobKind(image="x", namespace="work"), "grapnel-1", seal, request_of(request, "n00001"))["data"]
    server = Server(lambda _request: {"data": data})
    agents = Agents(Api(server), Machines(drivers={"n00001": objects.NEW}))
    events = list(LineReader("n00001", seal, EVERY_KEY).read(agents.log("work", "grapnel-1-x7k2p")))
    assert [request.path for request in server.asked] == ["/api/v1/namespaces/work/secrets/grapnel-1"]
    assert isinstance(events[-1], RunFinished)
    (done,) = [event for event in events if isinstance(event, TaskDone)]
    assert set(done.values) == {"facts"}
    assert objects.NEW.encode() in done.values["facts"]


def test_requests_and_bytes_are_counted_those_of_streams_too() -> None:
    counting = Counting(Api(Server(pages)))
    api = Api(counting)
    api.call(Request(method="GET", path="/x"), msgspec.Raw)
    before = counting.size
    assert before == len(json.dumps(pages(Request(method="GET", path="/x"))))
    assert list(api.stream(Request(method="GET", path="/x")).lines) == [b"12345", b"678"]
    assert (counting.requests, counting.size - before) == (2, 8)


def test_a_peer_lists_nodes_and_pods_to_the_last_page() -> None:
    server = Server(pages)
    requests, came = peer.look(Api(server))
    assert [request.path for request in server.asked] == [path for path in peer.LISTED for _page in range(2)]
    assert (requests, came > 0) == (4, True)
    assert count(Api(server), "/api/v1/pods") == 4


def test_requests_of_an_api_server_are_read_from_its_metrics() -> None:
    text = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests
apiserver_request_total{code="201",resource="jobs",scope="resource",subresource="",verb="POST"} 3
apiserver_request_total{code="409",resource="jobs",scope="resource",subresource="",verb="POST"} 1
apiserver_request_total{code="200",resource="pods",scope="resource",subresource="status",verb="PATCH"} 1.2e+01
apiserver_request_total{code="200",resource="",scope="",subresource="/readyz",verb="GET"} 2
apiserver_request_duration_seconds_count{resource="jobs",verb="POST"} 9
"""
    assert parse_requests(text) == {"POST jobs": 4, "PATCH pods/status": 12, "GET /readyz": 2}


@pytest.mark.parametrize(("nodes", "allowed"), [(100, 100), (1000, 100), (1001, 100.05), (5000, 300)])
def test_memory_is_allowed_by_the_number_of_nodes(nodes: int, allowed: float) -> None:
    assert allowed_mib(nodes) == pytest.approx(allowed)


def test_a_quantile_is_one_of_the_values() -> None:
    hundred = list(range(1, 101))
    assert (quantile(hundred, 0.5), quantile(hundred, 0.99), quantile([7], 0.99)) == (50, 99, 7)


def test_a_limit_that_is_missed_is_said() -> None:
    assert verdict(2.0, 2.0) == "(limit 2: kept)"
    text = "\n".join(lines(size(1000, memory_peak=100.1, noticed=(0.1,) * 98 + (2.1, 2.2))))
    assert "100.1 MiB   (limit 100: MISSED)" in text
    assert "2.10 s     (limit 2: MISSED)" in text
    assert "MISSED" not in "\n".join(lines(size(5000, memory_peak=299.0)))


def test_what_has_nothing_to_do_with_jobs_is_not_printed_of_them() -> None:
    found = JobCosts(
        nodes=4,
        jobs=16,
        seconds=20.0,
        asked=9.0,
        served={"POST jobs": 1.0, "GET /apis": 0.01},
        server_cpu_s=1.6,
        manager_cpu_s=0.16,
    )
    text = "\n".join(job_lines(found))
    assert "100 ms" in text
    assert "POST jobs" in text
    assert "/apis" not in text


def test_pictures_are_light_the_same_each_time_and_say_what_they_show(tmp_path: Path) -> None:
    found = [size(5000), size(100), size(1000)]
    paths = list(draw(found, tmp_path / "one"))
    assert [path.stem for path in paths] == list(PICTURES)
    for path, again in zip(paths, draw(found, tmp_path / "two"), strict=True):
        assert path.read_bytes() == again.read_bytes()
        assert path.stat().st_size < 40_000
        words = [text.strip() for text in ET.fromstring(path.read_text()).itertext()]  # noqa: S314 - see above
        assert {"nodes", "100", "1,000", "5,000"} <= set(words)
