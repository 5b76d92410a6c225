"""The sources get no larger, fuller or more entangled than was decided; and what counts them counts right."""

from __future__ import annotations

import textwrap

import pytest

from tasks.figures import Module, circles, entries, imports_among, measure, read_limits, read_sources


def test_no_figure_is_above_its_limit() -> None:
    found, limits = measure(read_sources()), read_limits()
    assert found.keys() == limits.keys()
    above = {name: f"{count}, at most {limits[name]}" for name, count in found.items() if count > limits[name]}
    assert above == {}, "make it smaller again, or raise its limit in docs/decisions/0114 with the reason"


def module(path: str, text: str = "") -> Module:
    return Module(path, textwrap.dedent(text))


def test_lines_are_code_alone() -> None:
    text = '''\
        """A module.

        Of two paragraphs.
        """

        # a comment
        VALUE = 1  # another one


        def work() -> int:
            """Return it."""
            return VALUE
        '''
    assert module("provision/a.py", text).lines == 3


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import provision.b", {"provision.b"}),
        ("from provision import b", {"provision.b"}),
        ("from provision.b import thing", {"provision.b"}),
        ("def late():\n    from provision.b import thing", {"provision.b"}),
        ("if TYPE_CHECKING:\n    from provision.b import Thing", set()),
        ("import json", set()),
    ],
)
def test_imports_are_those_that_are_made_when_it_runs(text: str, imported: set[str]) -> None:
    assert imports_among([module("provision/a.py", text), module("provision/b.py")])["provision.a"] == imported


def test_the_collection_is_known_by_the_name_that_ansible_gives_it() -> None:
    name = "ansible_collections.grapnel.node.plugins.module_utils"
    one = module("playbooks/plugins/module_utils/a.py", f"from {name}.b import thing")
    other = module("playbooks/plugins/module_utils/b.py")
    assert imports_among([one, other])[f"{name}.a"] == {f"{name}.b"}


def test_a_circle_is_what_leads_back_to_itself() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert sorted(map(sorted, circles(edges))) == [["a", "b", "c"], ["f", "g"]]


def test_things_of_a_folder_are_its_modules_and_folders() -> None:
    found = entries([module("a/__init__.py"), module("a/b.py"), module("a/c/d.py"), module("a/c/e.py")])
    assert found == {"a": 2, "a/c": 2}
