"""A run of 44 nodes that ends badly for some of them, as its events; what nodes say is hostile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from provision.planning.node_plan import Action, Disruption, Item, Problem, Role
from provision.report.runs import events as happened
from provision.report.runs.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from provision.report.runs.events import RunEvent
    from provision.report.runs.model import RunReport

BEGAN = datetime(2026, 5, 4, 2, 40, tzinfo=UTC)
HOSTILE = "<img src=x onerror=document.title='gone'><script>document.title='gone'</script>\x1b[31m\u202e"
HOSTILE_NAME = "gpu-<b>013</b>"
LOST = ("gpu007", HOSTILE_NAME)
NODES = (*(f"gpu{number:03}" for number in range(1, 40)), HOSTILE_NAME)
PHASES = (("cordon", 1), ("drain", 30), ("release", 4), ("swap", 80), ("verify", 12), ("resume", 2))
DRIVER = tuple(
    Item(
        role=Role.DRIVER,
        action=Action.UPGRADE,
        target=package,
        from_="550.163.01-2",
        to="570.172.08-1",
        reason="declared driver is 570.172.08",
        disruption=Disruption.DRAIN if package == "nvidia-kernel-dkms" else Disruption.NONE,
    )
    for package in ("nvidia-kernel-dkms", "libcuda1", "nvidia-smi")
)
ENGINE = (
    Item(
        role=Role.RUNTIME,
        action=Action.WRITE,
        target="/etc/containerd/conf.d/99-nvidia.toml",
        to="sha256:" + "ab" * 32,
        reason="the handler nvidia is not declared to containerd",
        disruption=Disruption.RESTART_RUNTIME,
    ),
)
BROKEN = Problem(
    code="engine-config",
    message="/etc/containerd/config.toml: line 12: a key is given twice",
    hint="mend the file: `containerd config dump` shows where",
)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def began(nodes: int = 44, *words: str) -> happened.Began:
    return happened.Began(
        time=BEGAN,
        schema="grapnel.dev/run-event/v1alpha1",
        run="20260504T024000Z-apply-3f2a",
        command=("apply", *(words or ("gpu*",))),
        by="ada@control",
        grapnel="0.1.0",
        inventory="/srv/site/inventory.yaml",
        nodes=nodes,
    )


def upgraded(node: str, begins: float) -> Iterator[RunEvent]:
    """A node's way through the rollout; one that is lost fails as it is verified."""
    now = begins
    for phase, seconds in PHASES:
        yield happened.PhaseBegan(time=at(now), node=node, phase=phase)
        if phase == "swap":
            yield from step(node, "driver: swap the driver", now, 75)
        now += seconds
        if phase == "verify" and node in LOST:
            reason = "GPU 3 is missing: 7 of 8 are there"
            yield happened.PhaseBegan(time=at(now), node=node, phase="failed", reason=reason)
            yield _lost(node, now)
            return
    yield happened.NodeEnded(
        time=at(now),
        node=node,
        result="converged",
        is_good=True,
        changes=4,
        passes=1,
        origin="550.163.01",
        target="570.172.08",
        out_of_service_seconds=now - begins,
    )


def step(node: str, name: str, begins: float, seconds: float, outcome: str = "changed") -> Iterator[RunEvent]:
    yield happened.StepBegan(time=at(begins), node=node, step=name)
    yield happened.StepEnded(time=at(begins + seconds), node=node, step=name, seconds=seconds, outcome=outcome)


def _lost(node: str, now: float) -> happened.NodeEnded:
    return happened.NodeEnded(
        time=at(now),
        node=node,
        result="failed",
        is_good=False,
        changes=4,
        passes=1,
        task="compare with the expectation",
        message=f"GPU 3 of {node} is missing: 7 of 8 are there {HOSTILE}",
        output=("NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.", HOSTILE),
        origin="550.163.01",
        target="570.172.08",
        out_of_service_seconds=900,
        is_out=True,
    )


def ended(node: str, result: str, message: str = "", *, is_good: bool = False) -> happened.NodeEnded:
    return happened.NodeEnded(time=at(1500), node=node, result=result, is_good=is_good, message=message)


def night() -> list[RunEvent]:
    """The whole run, up to its end."""
    found: list[RunEvent] = [
        began(),
        happened.Planned(time=at(14), nodes=NODES, items=DRIVER + ENGINE),
        happened.Planned(time=at(14), nodes=("gpu041", "gpu042")),
        happened.Planned(time=at(14), nodes=("gpu043",), problems=(BROKEN,)),
    ]
    for number, node in enumerate(NODES):
        found += upgraded(node, 20 + number // 5 * 180)
    found += [ended(node, "unchanged", is_good=True) for node in ("gpu041", "gpu042")]
    found.append(ended("gpu043", "refused", BROKEN.message))
    found.append(ended("gpu044", "unreachable", "ssh: connect to host 10.0.3.44 port 22: No route to host"))
    found.append(happened.Noted(time=at(300), text="RuntimeClass nvidia was created for the handler of that name"))
    found.append(happened.Ended(time=at(1520), exit_code=1))
    return found


def report_of(events: Iterable[RunEvent], *, is_going_on: bool = False) -> RunReport:
    made = digest(events, is_going_on=is_going_on, log="/home/ada/.local/state/grapnel/runs/0f/night/log")
    assert made is not None
    return made
