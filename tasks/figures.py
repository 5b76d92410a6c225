"""Measures the sources: how many things lie side by side, how large they are, what depends on what in a circle.

    python -P -m tasks.figures

What each figure may be at most stands in `docs/decisions/0114-figures-of-the-sources.md`, with the reason beside it
where one was raised; `tests/house` compares.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[1]
LIMITS: Final = ROOT / "docs" / "decisions" / "0114-figures-of-the-sources.md"
_PRODUCT: Final = ("provision", "runtime_hook", "plugin", "playbooks")
_TESTS: Final = "tests"
_COLLECTION: Final = "ansible_collections.grapnel.node."  # the name that Ansible gives to playbooks/
_CROWDED: Final = 18  # things side by side
_SMALL: Final = 30  # lines of a module
_LATE: Final = "PLC0415"
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOQA: Final = re.compile(r"#\s*noqa\b")
_ROW: Final = re.compile(r"^\| ([^|]+) \| ([0-9]+) \|", re.MULTILINE)


@dataclass(frozen=True)
class Module:
    """One file of Python; ``name`` is what imports call it."""

    path: str
    text: str

    @property
    def name(self) -> str:
        dotted = re.sub(r"(/__init__)?\.py$", "", self.path).replace("/", ".")
        return re.sub(r"^playbooks\.", _COLLECTION, dotted)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def documented(self) -> list[ast.AST]:
        """The module, and the classes and functions in it."""
        return [node for node in ast.walk(self.tree) if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS))]

    @cached_property
    def lines(self) -> int:
        """Lines of code: neither blank, nor a comment, nor a docstring."""
        lines = self.text.splitlines()
        return self.written - sum(bool(lines[at].strip()) for node in self.documented for at in _docstring(node))

    @cached_property
    def written(self) -> int:
        """Lines that are neither blank nor a comment."""
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in self.text.splitlines())

    @cached_property
    def imports(self) -> set[str]:
        """Names of modules, or of what is in them, that it imports when it runs; not those for type checkers."""
        return set(_imports(self.tree))


def _docstring(node: ast.AST) -> range:
    """Return the places of the lines of a docstring."""
    first = node.body[0] if node.body else None  # type: ignore[attr-defined]  # what can have one
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return range(first.lineno - 1, first.end_lineno or first.lineno)
    return range(0)


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (each.name for each in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield from (f"{child.module}.{each.name}" for each in child.names)
        else:
            yield from _imports(child)


def read_sources(root: Path = ROOT) -> list[Module]:
    """Return every module that git knows of a checkout."""
    done = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True)
    paths = (line for line in done.stdout.splitlines() if (root / line).is_file())
    return [Module(path, (root / path).read_text(encoding="utf-8")) for path in paths]


def measure(modules: list[Module], root: Path = ROOT) -> dict[str, int]:
    """Return the figures by their names; less is better."""
    tests = [each for each in modules if each.path.startswith(f"{_TESTS}/")]
    others = [each for each in modules if not each.path.startswith(f"{_TESTS}/")]
    product = [each for each in others if each.path.startswith(tuple(f"{name}/" for name in _PRODUCT))]
    files = [each for each in product if not each.path.endswith("__init__.py")]
    functions = [node for each in product for node in each.documented if isinstance(node, _FUNCTIONS)]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    side_by_side, edges = entries(others), imports_among(product)
    importers = Counter(target for targets in edges.values() for target in targets)
    exceptions = _exceptions(root)
    return {
        "things in the fullest folder": max(side_by_side.values(), default=0),
        f"folders of more than {_CROWDED} things": sum(count > _CROWDED for count in side_by_side.values()),
        "modules of the product": len(files),
        f"... of fewer than {_SMALL} lines": sum(each.lines < _SMALL for each in files),
        "... with a single importer": sum(importers[each.name] == 1 for each in files),
        "lines of the longest module": max((each.lines for each in product), default=0),
        "lines of the longest function": max(lengths, default=0),
        "lines of a function (median)": int(median(lengths or [0])),
        "circles of imports": len(circles(edges)),
        "exceptions from import contracts": len(exceptions),
        "... with a wildcard": sum("*" in each for each in exceptions),
        "noqa outside of tests": sum(len(_NOQA.findall(each.text)) for each in others),
        "... for imports inside of functions": sum(each.text.count(_LATE) for each in others),
        "lines outside of tests": sum(each.lines for each in others),
        "lines of tests": sum(each.written for each in tests),
    }


def entries(modules: list[Module]) -> dict[str, int]:
    """Return how many modules and folders lie in each folder."""
    found: dict[str, set[str]] = {}
    for each in modules:
        parts = each.path.split("/")
        for depth in range(1, len(parts)):
            if parts[depth] != "__init__.py":
                found.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    return {folder: len(names) for folder, names in found.items()}


def imports_among(modules: list[Module]) -> dict[str, set[str]]:
    """Return which modules each one imports, of these."""
    known = {each.name for each in modules}
    return {
        each.name: {found for name in each.imports if (found := _owner(name, known)) and found != each.name}
        for each in modules
    }


def _owner(name: str, known: set[str]) -> str:
    """Return the module that a name belongs to: itself, or what it is taken from."""
    above = name.rpartition(".")[0]
    return name if name in known else above if above in known else ""


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules each of which imports all the others, by way of one another (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in edges:
        _walk(start, edges, seen, order)
    back: dict[str, set[str]] = {name: set() for name in edges}
    for name, targets in edges.items():
        for target in targets:
            back[target].add(name)
    groups, seen = [], set()
    for start in reversed(order):
        group: list[str] = []
        _walk(start, back, seen, group)
        groups.append(set(group))
    return [group for group in groups if len(group) > 1]


def _walk(start: str, edges: Mapping[str, set[str]], seen: set[str], left: list[str]) -> None:
    """Add what can be reached and was not seen to ``left``, each after all that it leads to."""
    stack = [(start, iter(sorted(edges[start])))] if start not in seen else []
    seen.add(start)
    while stack:
        name, targets = stack[-1]
        target = next((each for each in targets if each not in seen), None)
        if target is None:
            stack.pop()
            left.append(name)
        else:
            seen.add(target)
            stack.append((target, iter(sorted(edges[target]))))


def _exceptions(root: Path) -> list[str]:
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [each for contract in contracts for each in contract.get("ignore_imports", ())]


def read_limits(path: Path = LIMITS) -> dict[str, int]:
    """Return what each figure may be at most."""
    return {name.strip(): int(most) for name, most in _ROW.findall(path.read_text(encoding="utf-8"))}


def main() -> None:
    """Print each figure, what it may be at most, and the fullest folders and circles."""
    modules = read_sources()
    limits = read_limits() if LIMITS.exists() else {}
    for name, found in measure(modules).items():
        print(f"{name:40} {found:7} {'of' if name in limits else ''} {limits.get(name, '')}")
    crowded = Counter(entries([each for each in modules if not each.path.startswith(f"{_TESTS}/")]))
    print("\nfullest folders: " + ", ".join(f"{name} {count}" for name, count in crowded.most_common(8)))
    for group in circles(imports_among([each for each in modules if each.path.split("/")[0] in _PRODUCT])):
        print("circle: " + " - ".join(sorted(group)))


if __name__ == "__main__":
    main()
