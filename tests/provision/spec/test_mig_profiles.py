"""MIG profiles by their names, and which of them a GPU has room for side by side."""

from __future__ import annotations

import pytest

from provision.declaration.spec.values.mig_profiles import (
    MODELS,
    can_hold,
    instances,
    models_of,
    models_with,
    parse_profile,
)

NAMES = [
    ("1g.10gb", "1g.10gb", "1g.10gb"),
    ("MIG 1g.10gb", "1g.10gb", "1g.10gb"),
    ("1c.1g.10gb", "1g.10gb", "1g.10gb"),
    ("MIG 1c.3g.40gb", "1c.3g.40gb", "3g.40gb"),
    ("1g.24gb+me.all", "1g.24gb+me.all", "1g.24gb+me.all"),
    ("2c.4g.96gb+gfx", "2c.4g.96gb+gfx", "4g.96gb+gfx"),
    ("1g.24gb-me", "1g.24gb-me", "1g.24gb-me"),
]


@pytest.mark.parametrize(("name", "short", "instance"), NAMES)
def test_a_profile_is_the_same_by_each_of_its_names(name: str, short: str, instance: str) -> None:
    profile = parse_profile(name)

    assert profile is not None
    assert (str(profile), profile.instance) == (short, instance)


@pytest.mark.parametrize("name", ["", "1g", "1g.10", "g.10gb", "0g.5gb", "1g.05gb", "2c.1g.10gb", "1g.10gb+you", "mig"])
def test_what_is_not_the_name_of_a_profile_is_none(name: str) -> None:
    assert parse_profile(name) is None


def test_devices_with_a_part_of_an_instance_share_it() -> None:
    devices = [(parse_profile(name), count) for name, count in (("1c.3g.40gb", 4), ("3g.40gb", 1), ("1g.10gb", 2))]

    assert instances((profile, count) for profile, count in devices if profile) == {"3g.40gb": 3, "1g.10gb": 2}


# Published combinations: NVIDIA's MIG user guide, and the layouts of mig-parted's config-default.yaml.
ROOM = [
    ("20b0", {"1g.5gb": 7}, True),
    ("20b0", {"1g.5gb": 8}, False),
    ("20b0", {"1g.10gb": 4}, True),
    ("20b0", {"1g.10gb": 5}, False),
    ("20b0", {"2g.10gb": 3, "1g.5gb": 1}, True),
    ("20b0", {"3g.20gb": 2}, True),
    ("20b0", {"3g.20gb": 2, "1g.5gb": 1}, False),
    ("20b0", {"4g.20gb": 1, "3g.20gb": 1}, True),
    ("20b0", {"4g.20gb": 2}, False),
    ("20b0", {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}, True),
    ("20b0", {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}, True),
    ("20b0", {"4g.20gb": 1, "2g.10gb": 2}, False),
    ("20b0", {"1g.5gb+me": 1, "1g.5gb": 6}, True),
    ("20b0", {"1g.5gb+me": 2}, False),
    ("2330", {"7g.80gb": 1}, True),
    ("2330", {"7g.80gb": 1, "1g.10gb": 1}, False),
    ("2330", {"7g.40gb": 1}, False),
    ("2901", {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1}, True),
    ("2941", {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1}, True),
    ("2941", {"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1}, True),
    ("20b7", {"1g.6gb": 4}, True),
    ("20b7", {"1g.6gb": 2, "2g.12gb": 1}, True),
    ("20b7", {"1g.6gb": 3, "2g.12gb": 1}, False),
    ("20b7", {"1g.6gb+me": 1, "2g.12gb+me": 1}, False),
    ("2bb5", {"1g.24gb-me": 4}, True),
    ("2bb5", {"1g.24gb+me.all": 1, "1g.24gb-me": 3}, True),
    ("2bb5", {"1g.24gb+me.all": 1, "2g.48gb+me.all": 1}, False),
    ("2bb5", {"1g.24gb+gfx": 2, "2g.48gb": 1}, True),
    ("2bb5", {"4g.96gb+gfx": 1}, True),
]


@pytest.mark.parametrize(("device", "wanted", "fits"), ROOM, ids=str)
def test_a_gpu_has_room_for_what_can_lie_side_by_side(device: str, wanted: dict[str, int], *, fits: bool) -> None:
    assert [can_hold(model, wanted) for model in models_of(device)] == [fits]


def test_a_huge_number_is_refused_at_once() -> None:
    assert not any(can_hold(model, {name: 10**9}) for model in MODELS for name in model.kinds)


def test_a_model_is_found_by_its_id_in_either_case_and_by_its_profiles() -> None:
    assert [model.name for model in models_of("20B7")] == ["A30"]
    assert models_of("1eb8") == ()
    assert [model.name for model in models_with(["1g.6gb", "4g.24gb"])] == ["A30"]


def test_no_id_is_in_two_models() -> None:
    ids = [device for model in MODELS for device in model.devices]

    assert len(ids) == len(set(ids))
