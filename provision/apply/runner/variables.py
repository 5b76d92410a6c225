"""Renders extra variables as a file that Ansible reads without evaluating any of their text.

Ansible treats an extra variable as a template. The text of a plan comes from nodes too (their configuration files), and
a node must not be able to run a lookup on the controller: such strings are tagged ``!unsafe``, which means "as it is".
Only such strings, because below that tag ansible-core 2.19 guesses the type of even a quoted text: "1.10" becomes 1.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

_TEMPLATE = ("{{", "{%", "{#", "#jinja2:")


class _Text(str):
    """A string that goes out with the tag."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes each value where it stands, without references between equal ones."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent(dumper: _Dumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("!unsafe", str(text), style='"')


_Dumper.add_representer(_Text, _represent)


def render_variables(variables: Mapping[str, object]) -> str:
    """Return YAML for ``ansible-playbook --extra-vars @file``. Keys are names and stay plain."""
    return yaml.dump(_tagged(variables), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)


def _tagged(value: object) -> object:
    if isinstance(value, str):
        return _Text(value) if any(mark in value for mark in _TEMPLATE) else value
    if isinstance(value, Mapping):
        return {key: _tagged(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_tagged(one) for one in value]
    return value
