"""The bill of materials has every distribution that is pinned, with its digests."""

from __future__ import annotations

import json
from pathlib import Path

from tasks.release.bill_of_materials import read_pins, render_bill

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
TEXT = f"""# by uv
h2==4.4.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via -r node.in
ruamel.yaml==0.18.6 ; python_version >= "3.9" \\
    --hash=sha256:{C}
"""


def test_a_pin_has_the_digests_that_follow_it() -> None:
    h2, yaml = read_pins(TEXT)
    assert (h2.purl, h2.digests) == ("pkg:pypi/h2@4.4.0", (A, B))
    assert (yaml.purl, yaml.digests) == ("pkg:pypi/ruamel-yaml@0.18.6", (C,))


def test_everything_that_is_pinned_is_a_component_of_its_part() -> None:
    document = json.loads(render_bill("1.2.3", REQUIREMENTS))
    parts = {each["purl"]: {one["value"] for one in each["properties"]} for each in document["components"]}

    for part, name in (("controller", "provision.txt"), ("node", "node.txt")):
        pinned = {pin.purl for pin in read_pins((REQUIREMENTS / name).read_text())}
        assert pinned
        assert pinned == {purl for purl, places in parts.items() if part in places}
    assert document["metadata"]["component"]["version"] == "1.2.3"
    assert document["dependencies"][0]["dependsOn"] == sorted(parts)
    assert all(each["externalReferences"] for each in document["components"])


def test_the_same_requirements_give_the_same_document() -> None:
    assert render_bill("1", REQUIREMENTS) == render_bill("1", REQUIREMENTS)
