"""A profile is the same in whichever way it is written."""

from __future__ import annotations

import pytest

from plugin.changes.mig_layout.model import parse_profile


@pytest.mark.parametrize(
    ("name", "short"),
    [
        pytest.param("1g.10gb", "1g.10gb", id="short"),
        pytest.param("MIG 1g.10gb", "1g.10gb", id="as nvidia-smi writes it"),
        pytest.param("1c.1g.10gb", "1g.10gb", id="all compute slices of one"),
        pytest.param("MIG 7c.7g.80gb", "7g.80gb", id="all compute slices of seven"),
        pytest.param("1c.2g.20gb", "1c.2g.20gb", id="a part of the compute slices"),
        pytest.param("1g.10gb+me", "1g.10gb+me", id="media extensions"),
        pytest.param("1c.1g.10gb+me", "1g.10gb+me", id="media extensions, all compute slices"),
        pytest.param("2g.24gb-me", "2g.24gb-me", id="without media engines"),
        pytest.param("1g.24gb+me.all", "1g.24gb+me.all", id="all media engines"),
        pytest.param("1g.24gb+gfx", "1g.24gb+gfx", id="graphics"),
    ],
)
def test_a_profile_has_one_short_name(name: str, short: str) -> None:
    assert parse_profile(name).name == short
    assert parse_profile(short) == parse_profile(name)


@pytest.mark.parametrize(
    "name", ["", "1g", "10gb", "0g.5gb", "g.10gb", "MIG1g.10gb", " 1g.10gb", "1G.10GB", "3c.2g.20gb"]
)
def test_what_is_no_profile_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"profile|compute slices"):
        parse_profile(name)
