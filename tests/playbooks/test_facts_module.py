"""What Ansible sends with the module that gathers facts: it is parsed and packed again in every run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PLUGINS: Final = Path(__file__).parents[2] / "playbooks" / "plugins"
ROOT: Final = "ansible_collections.grapnel.node.plugins.module_utils"


def imported(path: Path) -> Iterator[str]:
    """Yield the files of ours that a file imports, those for type checkers too, as Ansible finds them."""
    for each in ast.walk(ast.parse(path.read_text())):
        if isinstance(each, ast.ImportFrom) and each.module is not None and each.module.startswith(ROOT):
            module = each.module[len(ROOT) :].strip(".").replace(".", "/")
            for alias in each.names:
                inner = f"{module}/{alias.name}.py".lstrip("/")
                yield inner if (PLUGINS / "module_utils" / inner).is_file() else f"{module}.py"


def sent_with(module: str) -> set[str]:
    """Return the files below ``module_utils`` that are sent with a module."""
    found: set[str] = set()
    left = list(imported(PLUGINS / "modules" / module))
    while left:
        name = left.pop()
        if name not in found and (PLUGINS / "module_utils" / name).is_file():
            found.add(name)
            left += imported(PLUGINS / "module_utils" / name)
    return found


def test_facts_are_sent_without_what_changes_a_node() -> None:
    """The whole of three package managers was among them, for the versions of installed packages."""
    sent = sent_with("facts.py")
    assert {"packages/installed.py", "driver/record/store.py", "machine/host.py"} <= sent
    parts = ("choose", "download", "transaction", "source", "manager", "origin", "target", "way_back", "file_set")
    assert sorted(name for name in sent if Path(name).stem in parts) == []
    assert len(sent) <= 70


def test_the_driver_module_is_sent_with_them() -> None:
    assert {"packages/choose.py", "packages/apt/transaction.py"} <= sent_with("driver.py")
