"""Gives typed access to parsed JSON: every wrong type is an error that names the key."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime_hook.base.errors import HookError


class Document:
    """A JSON object with the name it has in messages and the error that wrong content raises."""

    def __init__(self, content: object, where: str, error: type[HookError]) -> None:
        if not isinstance(content, dict):
            raise error(f"{where} is not a JSON object but {json_type(content)}")
        self.content: dict[str, object] = content
        self.where = where
        self.error = error

    def wrong(self, key: str, expected: str) -> HookError:
        """Return the error for a key that does not hold what it should."""
        return self.error(f"{self.where}: {key} is not {expected} but {json_type(self.content.get(key))}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; a missing or null key gives the default, or fails without a default."""
        found = self.content.get(key)
        if found is None and default is not None:
            return default
        if not isinstance(found, str):
            raise self.wrong(key, "a string")
        return found

    def number(self, key: str, default: int | None = None) -> int:
        """Return an integer; a missing or null key gives the default, or fails without a default."""
        found = self.content.get(key)
        if found is None and default is not None:
            return default
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.wrong(key, "an integer")
        return found

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean; a missing or null key gives the default."""
        found = self.content.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(key, "true or false")
        return found

    def child(self, key: str) -> Document:
        """Return a nested object; a missing or null key is an empty one."""
        found = self.content.get(key)
        if found is not None and not isinstance(found, dict):
            raise self.wrong(key, "an object")
        return Document(found or {}, f"{self.where}: {key}", self.error)

    def items(self, key: str) -> list[object]:
        """Return a list; a missing or null key is an empty one."""
        found = self.content.get(key)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self.wrong(key, "a list")
        return found

    def children(self, key: str) -> list[Document]:
        """Return a list of objects."""
        listed = enumerate(self.items(key))
        return [Document(item, f"{self.where}: {key}[{index}]", self.error) for index, item in listed]

    def texts(self, key: str) -> list[str]:
        """Return a list of strings."""
        found = []
        for item in self.items(key):
            if not isinstance(item, str):
                raise self.wrong(key, "a list of strings")
            found.append(item)
        return found

    def mapping(self, key: str) -> dict[str, str]:
        """Return an object whose members are all strings."""
        found = {}
        for name, item in self.child(key).content.items():
            if not isinstance(item, str):
                raise self.wrong(key, "an object of strings")
            found[name] = item
        return found

    def only(self, known: Iterable[str]) -> None:
        """Fail on a key that is not known, naming it."""
        unknown = sorted(set(self.content) - set(known))
        if unknown:
            raise self.error(f"{self.where}: unknown key {unknown[0]}", f"known are {', '.join(sorted(known))}")


def json_type(found: object) -> str:
    """Return the JSON name of a value's type."""
    if found is None:
        return "null"
    if isinstance(found, bool):
        return "a boolean"
    names = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a fraction"}
    return names.get(type(found), "something else")
