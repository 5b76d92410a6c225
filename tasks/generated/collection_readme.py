"""Writes the tables of role variables in the collection's README from the roles' argument specs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

COLLECTION: Final = Path(__file__).parents[2] / "playbooks"
BEGIN: Final = "<!-- roles: made from meta/argument_specs.yml by `make collection-readme` -->\n"
END: Final = "<!-- end of roles -->\n"


def render(collection: Path = COLLECTION) -> str:
    """Return the README with its tables as the argument specs have them."""
    before, _, rest = (collection / "README.md").read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, *_roles(collection), "\n", END, after])


def _roles(collection: Path) -> Iterator[str]:
    for path in sorted(collection.glob("roles/*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"]
        yield f"\n### grapnel.node.{path.parent.parent.name}\n"
        for entry_point, spec in specs.items():
            yield from _entry_point(entry_point, spec)


def _entry_point(name: str, spec: dict[str, Any]) -> Iterator[str]:
    yield f"\n`{name}`: {spec['short_description']}. {_plain(' '.join(spec.get('description', [])))}".rstrip() + "\n"
    if spec["options"]:
        yield "\n| variable | type | default | |\n|---|---|---|---|\n"
    for option, about in spec["options"].items():
        default = "required" if about.get("required") else f"`{_value(about.get('default'))}`"
        choices = f" One of {', '.join(f'`{each}`' for each in about['choices'])}." if "choices" in about else ""
        yield f"| `{option}` | {_type(about)} | {default} | {_plain(about['description'])}{choices} |\n"


def _type(about: dict[str, Any]) -> str:
    return f"{about['type']} of {about['elements']}" if "elements" in about else str(about["type"])


def _value(default: object) -> str:
    return str(yaml.safe_dump(default, default_flow_style=True)).removesuffix("\n").removesuffix("\n...")


def _plain(text: str) -> str:
    """Return Ansible's markup, such as C(name), as Markdown."""
    for mark in ("C(", "O("):
        while mark in text:
            before, _, rest = text.partition(mark)
            inner, _, after = rest.partition(")")
            text = f"{before}`{inner}`{after}"
    return text.replace("|", "\\|")


if __name__ == "__main__":
    (COLLECTION / "README.md").write_text(render(), encoding="utf-8")
    sys.exit(0)
