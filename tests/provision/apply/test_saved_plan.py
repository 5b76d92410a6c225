"""A plan that was saved is applied as it is, or nothing is: what differs is named with the nodes."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from provision import __version__
from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.change.apply import apply_nodes
from provision.cli.foresee.plan import show_plans
from provision.cli.foresee.saved_plan import plan_of, read_plan, require_same, write_plan
from provision.rollout.decision.saved_plan import Options, differences, read
from tests.provision.apply.fakes import FakeFleet, FakeNode, cluster_of, context, scope_of
from tests.provision.apply.test_verbs import arguments
from tests.provision.contracts.schemas import CONTRACTS, render_schema
from tests.schema import require_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = CONTRACTS / "saved-plan/good/two-nodes-and-one-away.json"
BAD = CONTRACTS / "saved-plan/bad"


def save(fleet: FakeFleet, path: Path, **sections: dict[str, object]) -> None:
    scope = scope_of(cluster_of(fleet), **sections)
    options = Options(file="grapnel.yaml")
    show_plans(
        context(fleet),
        scope,
        as_json=False,
        tell_changes=False,
        save=lambda answers, prepared: write_plan(path, plan_of(scope, answers, prepared, options)),
    )


def apply(fleet: FakeFleet, path: Path, **sections: dict[str, object]) -> int:
    scope = scope_of(cluster_of(fleet), **sections)
    require = partial(require_same, read(path.read_bytes(), path.name, __version__), path, scope)
    return apply_nodes(context(fleet), scope, parallel=1, consent=True, require=require)


def test_what_was_planned_is_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, fleet = tmp_path / "p.json", FakeFleet({"n1": FakeNode(), "n2": FakeNode(reachable=False)})
    save(fleet, path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["p.json"]
    require_schema(json.loads(path.read_text()), render_schema("saved-plan"))
    assert f"`grapnel apply --saved {path}` does exactly this, or nothing" in capsys.readouterr().err

    assert apply(fleet, path) == 1  # n2 is away, as it was
    assert set(fleet.applied()) == {"n1"}


@pytest.mark.parametrize(
    ("now", "sections", "told"),
    [
        pytest.param({"n1": FakeNode(["driver"])}, {}, "n1: no longer: install driver", id="somebody changed a node"),
        pytest.param(
            {"n1": FakeNode(reachable=False)}, {}, "n1: it has no plan now (unreachable)", id="a node is away"
        ),
        pytest.param({"n1": FakeNode(["curse"])}, {}, "n1: problem cursed, new", id="a node has a problem"),
        pytest.param({"n2": FakeNode()}, {}, "n2: it is not in the plan", id="another inventory"),
        pytest.param(
            {"n1": FakeNode()},
            {"rollout": {"maxParallel": 2}},
            "n1: declared otherwise: rollout.maxParallel",
            id="the declaration",
        ),
    ],
)
def test_nothing_is_applied_where_another_plan_is_made_now(
    now: dict[str, FakeNode],
    sections: dict[str, dict[str, object]],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, fleet = tmp_path / "p.json", FakeFleet(now)
    save(FakeFleet({"n1": FakeNode()}), path)

    with pytest.raises(GrapnelError, match=r"nothing was changed: .*p\.json was saved by ") as raised:
        apply(fleet, path, **sections)

    assert f"  {told}" in capsys.readouterr().err
    assert raised.value.hint == f"`grapnel plan -o {path}` saves what would be done now, to be looked at again"
    assert fleet.applied() == []


def put(*keys: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


FILES = ("nodes", 0, "files", "/etc/containerd/conf.d/50-grapnel.toml")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(
            put("nodes", 0, "items", 0, "reason", value="held by 4711"), {}, id="a reason that names a process"
        ),
        pytest.param(put("madeBy", value="eve@laptop"), {}, id="who planned it"),
        pytest.param(put("nodes", 0, "machine", value="0" * 32), {"it is another machine now": ("n1",)}, id="machine"),
        pytest.param(
            put("nodes", 0, "items", 0, "to", value="560.1"),
            {
                "now: upgrade driver 535.261.03 → 560.1 (drain, once it is staged), "
                "was 535.261.03 → 550.163.01 (drain, once it is staged)": ("n1",)
            },
            id="another version",
        ),
        pytest.param(
            put(*FILES, value="0" * 32),
            {"other content for /etc/containerd/conf.d/50-grapnel.toml": ("n1",)},
            id="the text of a file",
        ),
        pytest.param(put("nodes", 1, "roles", "tuning", value="0"), {"other work for tuning": ("n2",)}, id="a role"),
        pytest.param(
            put("nodes", 2, "failure", value=None),
            {"it has a plan now, and had none (unreachable)": ("n3",)},
            id="answers",
        ),
        pytest.param(
            put("cluster", "name", value=""),
            {"planned for https://10.0.0.1:6443, and this is machines without a cluster": ()},
            id="another cluster",
        ),
        pytest.param(
            put("cluster", "outOfService", value=["n2"]),
            {"it would not be taken out of service any more": ("n1",)},
            id="in place",
        ),
        pytest.param(put("cluster", "refused", value=["n2"]), {"it would be refused now": ("n2",)}, id="refused"),
        pytest.param(
            put("cluster", "marks", value={}), {"other changes of labels and taints": ("n1",)}, id="labels of a Node"
        ),
        pytest.param(
            put("cluster", "runtimeClasses", value=[]),
            {"other RuntimeClasses are missing in the cluster": ()},
            id="a RuntimeClass",
        ),
        pytest.param(
            put("cluster", "tenancy", value=["quota"]),
            {"other changes of quotas, priorities and queues": ()},
            id="a quota",
        ),
    ],
)
def test_every_difference_has_words(change: Callable[[dict[str, Any]], None], told: dict[str, tuple[str, ...]]) -> None:
    before = json.loads(GOOD.read_text())
    after = copy.deepcopy(before)
    change(after)

    plans = [read(json.dumps(each).encode(), "p.json", "0.1.0") for each in (before, after)]

    assert differences(*plans) == told


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", "p.json is no saved plan, or only a part of one: it is no JSON document", id="empty"),
        pytest.param(GOOD.read_bytes()[:-40], "p.json is no saved plan, or only a part of one", id="cut off"),
        pytest.param(b"\xff\xfe", "p.json is no saved plan, or only a part of one", id="no text"),
        pytest.param(b"[" * 10_000, "p.json is no saved plan, or only a part of one", id="nested too deeply"),
        pytest.param(b"{}", "p.json is no saved plan: it has no schema", id="another document"),
        pytest.param(
            (BAD / "what-json-prints.json").read_bytes(),
            "p.json is no saved plan: its schema is grapnel.dev/plans/v1alpha1",
            id="what `plan --json` prints",
        ),
        pytest.param(
            (BAD / "schema-of-the-future.json").read_bytes(),
            "p.json is of another version: grapnel.dev/saved-plan/v2, by grapnel 0.1.0, and this is 0.1.0",
            id="another schema",
        ),
        pytest.param(
            GOOD.read_bytes().replace(b'"grapnel": "0.1.0"', b'"grapnel": "0.0.9"'),
            "p.json is of another version: grapnel.dev/saved-plan/v1alpha1, by grapnel 0.0.9, and this is 0.1.0",
            id="another grapnel",
        ),
        pytest.param(
            (BAD / "action-of-nobody.json").read_bytes(),
            "p.json is no saved plan: invalid enum value 'wipe' - at `$.nodes[0].items[0].action`",
            id="an unknown action",
        ),
    ],
)
def test_what_is_no_saved_plan_of_this_version_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(GrapnelError) as raised:
        read(data, "p.json", "0.1.0")

    assert raised.value.message.startswith(told)
    assert "`grapnel plan -o p.json` saves one" in raised.value.hint


def test_options_of_the_plan_are_those_that_the_command_line_leaves_unsaid(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    document = json.loads(GOOD.read_text())
    document["grapnel"] = __version__
    document["options"] |= {"file": "prod.yaml", "inventory": ["a.yaml"], "limit": "rack1", "noCluster": True}
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    args = arguments("apply", "--saved", str(path), "rack2")

    read_plan(args)

    assert (str(args.file), args.inventory, args.limit, args.no_cluster) == ("prod.yaml", ["a.yaml"], "rack2", True)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_plan_that_cannot_be_read_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["apply", "--saved", name]) == 1
    assert f"{name} cannot be read: " in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_plan_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    path.chmod(mode)

    with pytest.raises(GrapnelError, match="may be written by others"):
        read_plan(arguments("apply", "--saved", str(path)))


def test_a_plan_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(GrapnelError, match=r"p\.json cannot be written: no such file or directory"):
        save(FakeFleet({"n1": FakeNode()}), tmp_path / "none" / "p.json")
