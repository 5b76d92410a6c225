"""The forms of an answer: each of NVIDIA's strategies, and what is the same in all of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.devices.allocation.answer import CDI_KIND, AnswerForm, ContainerAnswer, DeviceList, Imex, Mount
from plugin.devices.allocation.table import allocate, find_missing_channels
from plugin.devices.inventory import Inventory, next_inventory
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, DictTree, gpu, gpus, whole_table

INVENTORY = next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), DictTree())
CHANNEL = "nvidia-caps-imex-channels/channel0"
WITHOUT_CHANNEL = next_inventory(Inventory(), Snapshot(VERSION, gpus(4)), DictTree({CHANNEL}))
A, B = gpu(1).uuid, gpu(3).uuid
ENVVAR, MOUNTS, ANNOTATIONS, CRI = DeviceList


def answer(form: AnswerForm) -> ContainerAnswer:
    return allocate(whole_table(INVENTORY, form), [B, A])


@pytest.mark.parametrize(
    ("form", "variable"),
    [
        pytest.param(AnswerForm(), f"{A},{B}", id="by the environment"),
        pytest.param(AnswerForm(by_index=True), "1,3", id="by the environment as indices"),
        pytest.param(AnswerForm((MOUNTS,)), "/var/run/nvidia-container-devices", id="by mounts"),
        pytest.param(AnswerForm((ENVVAR, MOUNTS)), "/var/run/nvidia-container-devices", id="mounts before environment"),
        pytest.param(AnswerForm((CRI,)), None, id="by CDI alone"),
        pytest.param(AnswerForm((CRI, ENVVAR)), f"{A},{B}", id="by CDI and the environment"),
    ],
)
def test_the_environment_names_devices_where_the_strategy_says_so(form: AnswerForm, variable: str | None) -> None:
    assert answer(form).envs.get("NVIDIA_VISIBLE_DEVICES") == variable


@pytest.mark.parametrize(("by_index", "names"), [(False, (A, B)), (True, ("1", "3"))], ids=["by uuid", "by index"])
def test_mounts_and_cdi_names_follow_the_id_strategy(by_index: bool, names: tuple[str, str]) -> None:  # noqa: FBT001 - a column
    got = answer(AnswerForm((MOUNTS, ANNOTATIONS, CRI), by_index=by_index))
    assert got.mounts == tuple(Mount(f"/var/run/nvidia-container-devices/{name}", "/dev/null", True) for name in names)
    assert got.cdi_devices == tuple(f"{CDI_KIND}={name}" for name in names)
    assert got.annotations[f"cdi.k8s.io/nvidia-device-plugin_{A}"] == ",".join(got.cdi_devices)


def test_the_prefix_of_the_cdi_annotation_can_be_another() -> None:
    got = answer(AnswerForm((ANNOTATIONS,), cdi_annotation_prefix="example.com/"))
    assert set(got.annotations) == {"grapnel.dev/allocation", f"example.com/nvidia-device-plugin_{A}"}


def test_the_key_of_a_cdi_annotation_is_one_that_kubernetes_takes() -> None:
    (key,) = set(answer(AnswerForm((ANNOTATIONS,))).annotations) - {"grapnel.dev/allocation"}
    assert len(key.partition("/")[2]) <= 63


def test_further_variables_are_enabled() -> None:
    assert answer(AnswerForm(variables=("NVIDIA_GDS",))).envs["NVIDIA_GDS"] == "enabled"


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        pytest.param(AnswerForm(), (True, False, True), id="by the environment"),
        pytest.param(AnswerForm(has_nodes=False), (True, False, False), id="nodes are left to the runtime"),
        pytest.param(AnswerForm((MOUNTS,)), (False, True, True), id="by mounts"),
        pytest.param(AnswerForm((ENVVAR, MOUNTS)), (True, True, True), id="by both"),
        pytest.param(AnswerForm((CRI,), has_nodes=False), (False, False, True), id="by CDI, whose file has no channel"),
        pytest.param(AnswerForm((ANNOTATIONS,), has_nodes=False), (False, False, True), id="by a CDI annotation"),
    ],
)
def test_an_imex_channel_is_said_as_the_strategy_says_devices(form: AnswerForm, parts: tuple[bool, ...]) -> None:
    got = answer(replace(form, imex=Imex((0,))))
    assert (
        got.envs.get("NVIDIA_IMEX_CHANNELS") == "0",
        Mount("/var/run/nvidia-container-devices/imex/0") in got.mounts,
        [node.host_path for node in got.nodes if "imex" in node.container_path] == [f"/dev/{CHANNEL}"],
    ) == parts
    assert not any("imex" in name for name in got.cdi_devices)


@pytest.mark.parametrize(
    ("wanted", "inventory", "words"),
    [
        pytest.param(Imex((0,)), WITHOUT_CHANNEL, "imex channel 0 does not exist", id="declared and missing"),
        pytest.param(Imex((0,)), INVENTORY, "", id="declared and there"),
        pytest.param(Imex(), WITHOUT_CHANNEL, "", id="not declared"),
    ],
)
def test_a_channel_that_does_not_exist_is_in_no_answer(wanted: Imex, inventory: Inventory, words: str) -> None:
    form = AnswerForm(imex=wanted)
    got = allocate(whole_table(inventory, form), [A])
    assert find_missing_channels(form, inventory) == words
    assert ("NVIDIA_IMEX_CHANNELS" in got.envs) == (wanted == Imex((0,)) and not words)


def test_a_node_with_a_channel_gives_none_that_nobody_declared() -> None:
    got = answer(AnswerForm((ENVVAR, MOUNTS, CRI)))
    assert "imex" not in str(got).replace("imex_channels", "").lower()


FORMS = st.builds(
    AnswerForm,
    lists=st.lists(st.sampled_from(DeviceList), min_size=1, unique=True).map(tuple),
    by_index=st.booleans(),
    has_nodes=st.booleans(),
    variables=st.sampled_from([(), ("NVIDIA_GDS",), ("NVIDIA_GDS", "NVIDIA_MOFED")]),
)


@given(FORMS, st.lists(st.sampled_from([gpu(index).uuid for index in range(4)]), min_size=1, unique=True))
def test_every_form_names_the_same_devices_whatever_the_order(form: AnswerForm, ids: list[str]) -> None:
    table = whole_table(INVENTORY, form)
    got = allocate(table, ids)
    assert all(allocate(table, order) == got for order in itertools.islice(itertools.permutations(ids), 6))
    assert got.annotations["grapnel.dev/allocation"] == ",".join(sorted(ids))
    assert got.device_ids == tuple(sorted(ids))
    assert len(got.nodes) == (3 + len(ids) if form.has_nodes else 0)
    assert bool(got.mounts) == (MOUNTS in form.lists)
    assert bool(got.cdi_devices) == (CRI in form.lists)
    assert len(got.annotations) == 1 + (ANNOTATIONS in form.lists)
