"""A handler of another product is taken over, others stay in force, and a second plan has nothing to do."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.node import Engine, NodeFacts
from provision.planning.engines import crio, docker
from provision.planning.engines.containerd import imports as containerd
from tests.provision.samples import (
    DEBIAN_CONFIG,
    RUNNING,
    edit_file,
    edit_file_state,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    text_of,
)

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec

V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
ADOPTED = "/etc/containerd/conf.d/99-nvidia-adopted.toml"
CTK = "/etc/crio/crio.conf.d/99-nvidia.toml"
WRAPPER = "/usr/bin/nvidia-container-runtime"
IMPORT = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
OFF: dict[str, dict[str, object]] = {"driver": {"enabled": False}, "plugin": {"enabled": False}}


def handlers(plugin: str, version: int, *names: str, more: str = "") -> str:
    """Return a drop-in like those of NVIDIA's toolkit."""
    text = f'version = {version}\n[plugins."{plugin}".containerd]\n{more}'
    for name in names:
        at = f'[plugins."{plugin}".containerd.runtimes.{name}'
        text += f'{at}]\nruntime_type = "io.containerd.runc.v2"\n'
        text += f'{at}.options]\nBinaryName = "{WRAPPER}"\nSystemdCgroup = true\n'
    return text


RUNC = "".join(
    f'[plugins."{V3}".containerd.runtimes.runc{table}\n'
    for table in (".options]\nSystemdCgroup = true", ']\nruntime_type = "io.containerd.runc.v2"')
)
DAEMON = (
    '{\n  "default-runtime": "nvidia",\n\t"runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}\n'
)


def node(engine: str, version: str, **files: str) -> NodeFacts:
    facts = make_facts(engines={engine: Engine(binary=f"/usr/bin/{engine}", version=version)})
    for path, text in files.items():
        facts = edit_file(facts, path, text)
    return replace(facts, services={f"{engine}.service": RUNNING})


NODES: dict[str, NodeFacts] = {
    "containerd 1.7, in the main file": node(
        "containerd", "1.7.24", **{containerd.MAIN_PATH: handlers(V2, 2, "nvidia", "runc")}
    ),
    "containerd 1.7, in a drop-in at the place of ours": node(
        "containerd",
        "1.7.24",
        **{
            containerd.MAIN_PATH: IMPORT + DEBIAN_CONFIG,
            containerd.DROP_IN_PATH: handlers(V2, 2, "nvidia", "nvidia-cdi", "nvidia-legacy"),
        },
    ),
    "containerd 2, in a drop-in that makes it the default": node(
        "containerd",
        "2.1.4",
        **{
            containerd.MAIN_PATH: f"version = 3\n{IMPORT}{RUNC}",
            containerd.DROP_IN_PATH: handlers(V3, 3, "nvidia", "nvidia-cdi", more='default_runtime_name = "nvidia"\n'),
        },
    ),
    "CRI-O, by nvidia-ctk": node(
        "crio",
        "1.36.3",
        **{
            "/etc/crio/crio.conf.d/10-crun.conf": '[crio.runtime.runtimes.crun]\nruntime_path = "/x/crun"\n',
            CTK: f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{WRAPPER}"\nruntime_type = "oci"\n',
        },
    ),
    "CRI-O, by the GPU operator": node(
        "crio",
        "1.36.3",
        **{
            "/etc/crio/crio.conf.d/10-crun.conf": '[crio.runtime.runtimes.crun]\nruntime_path = "/x/crun"\n',
            crio.DROP_IN_PATH: f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{WRAPPER}"\n',
        },
    ),
    "Docker": node("docker", "26.1.5", **{docker.MAIN_PATH: DAEMON}),
}
LISTENING = f'version = 2\n[plugins."{V2}".containerd.runtimes.nvidia]\npod_annotations = ["*"]\n'
CASES = pytest.mark.parametrize("before", list(NODES.values()), ids=list(NODES))


def stack(facts: NodeFacts, *, adopt: bool = True) -> StackSpec:
    (engine,) = facts.engines
    return make_stack(**OFF, runtime={"engine": engine, "adopt": adopt})


def adopted(facts: NodeFacts) -> NodeFacts:
    planned = plan(facts, stack(facts))
    assert not planned.problems
    return simulate_apply(facts, planned)


@CASES
def test_nothing_is_left_to_do_afterwards(before: NodeFacts) -> None:
    after = adopted(before)

    assert plan(after, stack(before)).is_empty


@pytest.mark.parametrize("name", ["containerd 1.7, in the main file", "CRI-O, by nvidia-ctk", "Docker"])
def test_without_adopt_it_is_refused_with_both_ways_out(name: str) -> None:
    before = NODES[name]

    (problem,) = plan(before, stack(before, adopt=False)).problems
    assert "grapnel did not create it" in problem.message
    assert "runtime.adopt: true" in problem.hint


def test_other_handlers_of_a_drop_in_stay_in_force() -> None:
    before = NODES["containerd 1.7, in a drop-in at the place of ours"]
    after = adopted(before)

    tables = tomllib.loads(text_of(after, containerd.DROP_IN_PATH))["plugins"][V2]["containerd"]["runtimes"]
    assert tables["nvidia-cdi"]["options"]["BinaryName"] == WRAPPER
    assert tables["nvidia"]["base_runtime_spec"] == "/etc/grapnel/containerd/base-spec.json"
    assert tables["nvidia"]["options"] == {"BinaryName": "", "SystemdCgroup": True}


def test_a_handler_that_is_named_as_an_alias_is_taken_over_as_well() -> None:
    before = NODES["containerd 1.7, in a drop-in at the place of ours"]
    both = make_stack(**OFF, runtime={"adopt": True, "handlerAliases": ["nvidia-cdi"]})
    after = simulate_apply(before, plan(before, both))

    tables = tomllib.loads(text_of(after, containerd.DROP_IN_PATH))["plugins"][V2]["containerd"]["runtimes"]
    assert tables["nvidia"] == tables["nvidia-cdi"]
    assert tables["nvidia-legacy"]["options"]["BinaryName"] == WRAPPER
    assert plan(after, both).is_empty


def test_where_the_engine_merges_their_program_is_covered() -> None:
    before = NODES["containerd 2, in a drop-in that makes it the default"]
    after = adopted(before)

    handler = tomllib.loads(text_of(after, containerd.DROP_IN_PATH))["plugins"][V3]["containerd"]["runtimes"]["nvidia"]
    assert handler["options"] == {"BinaryName": "", "SystemdCgroup": True}
    assert after.content(ADOPTED) == before.content(containerd.DROP_IN_PATH)


def test_a_drop_in_that_would_be_read_later_is_emptied() -> None:
    before = NODES["CRI-O, by nvidia-ctk"]
    after = adopted(before)

    assert tomllib.loads(text_of(after, CTK)) == {}
    assert after.content("/etc/crio/crio.conf.d/99-nvidia-adopted.toml") == before.content(CTK)


def test_docker_s_other_keys_stay() -> None:
    before = NODES["Docker"]

    assert json.loads(text_of(adopted(before), docker.MAIN_PATH))["default-runtime"] == "nvidia"


def test_what_their_program_writes_again_is_moved_again() -> None:
    before = NODES["containerd 1.7, in a drop-in at the place of ours"]
    again = edit_file(adopted(before), containerd.DROP_IN_PATH, handlers(V2, 2, "nvidia"))

    after = adopted(again)
    assert after.content(ADOPTED) == handlers(V2, 2, "nvidia")
    assert plan(after, stack(before)).is_empty


def test_what_is_moved_is_as_secret_as_it_was() -> None:
    before = NODES["containerd 1.7, in a drop-in at the place of ours"]
    secret = edit_file_state(before, containerd.DROP_IN_PATH, mode="0600")

    state = adopted(secret).file(ADOPTED)
    assert state is not None
    assert state.mode == "0600"


@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param(
            node("containerd", "2.1.4", **{
                containerd.MAIN_PATH: f"version = 3\n{IMPORT}",
                "/etc/containerd/conf.d/zz.toml": handlers(V3, 3, "nvidia"),
            }),
            "is read after /etc/containerd/conf.d/99-nvidia.toml",
            id="a handler in a file that is read later",
        ),
        pytest.param(
            node("containerd", "1.7.24", **{
                containerd.MAIN_PATH: LISTENING
            }),
            "lets annotations of pods through",
            id="a handler that listens to pods",
        ),
        pytest.param(
            edit_file_state(NODES["Docker"], docker.MAIN_PATH, content=None), "is not text", id="a file of no text"
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_over_is_refused(before: NodeFacts, words: str) -> None:
    (problem,) = plan(before, stack(before)).problems

    assert words in problem.message
