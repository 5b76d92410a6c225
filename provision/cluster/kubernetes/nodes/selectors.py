"""Judges what DeviceClasses and claims demand of a device in CEL, as far as that is in the usual forms. Pure.

Comparisons of `device.driver`, attributes, capacities and `allowMultipleAllocations` with constants, `in`, `has`,
`startsWith`, `endsWith`, `contains`, `compareTo`, `isGreaterThan`, `isLessThan`, and `&&`, `||`, `!` between them. All
else is `NotJudgedError`: arithmetic, regular expressions, lists that are filtered, `cel.bind`. As in CEL, what decides
an `&&` or `||` alone does so whatever the other side comes to, and what is not there is an error
(k8s.io/dynamic-resource-allocation/cel).
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from provision.declaration.spec.values.quantities import read_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    from provision.cluster.kubernetes.objects.claims import Attribute, DescribedDevice

    Judged = Callable[["Seen"], Any]

_DEEPEST: Final = 40  # of what stands within something else
_LONGEST: Final = 500  # words and signs
_WORDS: Final = {"true": True, "false": False}
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<text>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))|(?P<number>[0-9]{1,19})(?![0-9.eExXuU])"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||[=!<>]=|[<>!()\[\].,-]))"""
)
_ESCAPE: Final = re.compile(r"\\(.)")
_COUNT: Final = r"(0|[1-9][0-9]{0,18})"
_VERSION: Final = re.compile(rf"{_COUNT}\.{_COUNT}\.{_COUNT}(?:-([0-9A-Za-z.-]{{1,64}}))?(?:\+[0-9A-Za-z.-]+)?")
_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_IN_TEXT: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}


class NotJudgedError(Exception):
    """An expression, or a value, in a form that is not known here."""


class NotThereError(Exception):
    """An attribute or a capacity that a device has not: the scheduler gives up there, and gives the claim nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A quantity, which is not a number for CEL."""

    value: Fraction


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A semantic version; one before a release is older than it."""

    numbers: tuple[int, int, int]
    is_release: bool = True
    before: tuple[tuple[bool, int, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Version:
        """Raise NotJudgedError for what is none."""
        if (found := _VERSION.fullmatch(text)) is None:
            raise NotJudgedError(f"'{text}' as a version")
        parts = (found[4] or "").split(".") if found[4] else []
        before = tuple((not each.isdecimal(), int(each) if each.isdecimal() else 0, each) for each in parts)
        return cls((int(found[1]), int(found[2]), int(found[3])), not before, before)


@dataclass(frozen=True, slots=True)
class Seen:
    """A device as expressions see it: attributes and capacities by their domains and names.

    ``shown`` is what it has, as the API writes it, by names as they are written there.
    """

    variables: Mapping[str, Any]
    shown: Mapping[str, str]

    @classmethod
    def of(cls, device: DescribedDevice, driver: str) -> Seen:
        """Return a device of a driver, in whose domain are names without one."""
        attributes: dict[str, dict[str, Any]] = defaultdict(dict)
        capacity: dict[str, dict[str, Any]] = defaultdict(dict)
        for name, attribute in device.attributes.items():
            domain, _, own = name.rpartition("/")
            attributes[domain or driver][own] = _value(attribute)
        for name, amount in device.capacity.items():
            domain, _, own = name.rpartition("/")
            number = read_quantity(amount.value)
            capacity[domain or driver][own] = None if number is None else Amount(number)
        shown = {name: amount.value for name, amount in device.capacity.items()}
        shown |= {name: str(each.value) for name, each in device.attributes.items() if each.value is not None}
        known = {"driver": driver, "attributes": attributes, "capacity": capacity}
        return cls(known | {"allowMultipleAllocations": bool(device.allow_multiple_allocations)}, shown)

    def told(self, part: Part) -> str:
        """Return what it has of that which a part looks at, such as `architecture is Ampere`."""
        found = [(name, value) for name, value in self.shown.items() if name.rpartition("/")[2] in part.names]
        return ", ".join(f"{name} is {value}" for name, value in sorted(found))


@dataclass(frozen=True, slots=True)
class Part:
    """Something to be judged: ``text`` as it was written, ``names`` of what it looks at, parts that all have to be."""

    text: str
    judge: Judged
    names: frozenset[str] = frozenset()
    all_of: tuple[Part, ...] = ()

    def holds(self, seen: Seen) -> bool:
        """Tell whether a device meets it. Raises NotJudgedError and NotThereError."""
        found = self.judge(seen)
        if not isinstance(found, bool):
            raise NotJudgedError(self.text)
        return found


def parse(expression: str) -> Part:
    """Return an expression. Raises NotJudgedError for one in another form."""
    return _Parser(expression).whole()


def _value(attribute: Attribute) -> Any:
    if attribute.version is None:
        return attribute.value
    try:
        return Version.parse(attribute.version)
    except NotJudgedError:
        return None


class _Parser:
    """Recursive descent through what `parse` takes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int, int]] = []
        self._next = 0
        self._depth = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                self._give_up()
            kind = found.lastgroup
            self._tokens.append((kind, found[kind], found.start(kind), found.end()))
            position = found.end()
        if len(self._tokens) > _LONGEST:
            self._give_up()

    def whole(self) -> Part:
        part = self._chain("||")
        if self._next < len(self._tokens):
            self._give_up()
        return part

    def _give_up(self) -> NoReturn:
        raise NotJudgedError(self._text)

    def _sees(self, sign: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next][1] == sign and not self._is_text()

    def _is_text(self) -> bool:
        return self._tokens[self._next][0] == "text"

    def _takes(self, sign: str) -> bool:
        is_there = self._sees(sign)
        self._next += is_there
        return is_there

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            self._give_up()

    def _take(self, kind: str) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] != kind:
            self._give_up()
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _since(self, begin: int) -> str:
        return self._text[self._tokens[begin][2] : self._tokens[self._next - 1][3]]

    def _part(self, begin: int, judge: Judged, *below: Part, name: str = "", all_of: tuple[Part, ...] = ()) -> Part:
        names = frozenset({name} - {""}).union(*(each.names for each in below))
        return Part(self._since(begin), judge, names, all_of)

    def _chain(self, sign: str) -> Part:
        """Read what is joined by `||`, or by `&&` within that."""
        begin = self._next
        below: Callable[[], Part] = self._relation if sign == "&&" else lambda: self._chain("&&")
        parts = [below()]
        while self._takes(sign):
            parts.append(below())
        if len(parts) == 1:
            return parts[0]
        decides = sign == "||"
        all_of = () if decides else tuple(one for each in parts for one in each.all_of or (each,))
        return self._part(begin, lambda seen: _joined(parts, seen, decides=decides), *parts, all_of=all_of)

    def _relation(self) -> Part:
        begin = self._next
        left = self._unary()
        sign = next((each for each in ("==", "!=", *_ORDER, "in") if self._takes(each)), None)
        if sign is None:
            return left
        right = self._unary()
        return self._part(begin, lambda seen: _compared(sign, left.judge(seen), right.judge(seen)), left, right)

    def _unary(self) -> Part:
        begin = self._next
        if self._takes("!"):
            inner = self._within(self._unary)
            return self._part(begin, lambda seen: not inner.holds(seen), inner)
        if self._takes("-"):
            number = -int(self._take("number"))
            return self._part(begin, lambda _: number)
        return self._member()

    def _member(self) -> Part:
        begin = self._next
        part = self._primary()
        while True:
            if self._takes("."):
                name = self._take("name")
                part = self._call(begin, part, name) if self._takes("(") else self._looked_up(begin, part, name)
            elif self._takes("["):
                key = _text_of(self._take("text"))
                self._needs("]")
                part = self._looked_up(begin, part, key)
            else:
                return part

    def _looked_up(self, begin: int, of: Part, name: str) -> Part:
        return self._part(begin, lambda seen: _found(of.judge(seen), name), of, name=name)

    def _call(self, begin: int, of: Part, name: str) -> Part:
        argument = self._within(lambda: self._chain("||"))
        self._needs(")")
        return self._part(begin, lambda seen: _called(name, of.judge(seen), argument.judge(seen)), of, argument)

    def _within(self, read: Callable[[], Part]) -> Part:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._give_up()
        part = read()
        self._depth -= 1
        return part

    def _primary(self) -> Part:
        begin = self._next
        if self._takes("("):
            inner = self._within(lambda: self._chain("||"))
            self._needs(")")
            return inner
        if self._takes("["):
            return self._list(begin)
        if begin >= len(self._tokens):
            self._give_up()
        kind = self._tokens[begin][0]
        if kind == "text":
            text = _text_of(self._take("text"))
            return self._part(begin, lambda _: text)
        if kind == "number":
            number = int(self._take("number"))
            return self._part(begin, lambda _: number)
        return self._named(begin, self._take("name"))

    def _named(self, begin: int, name: str) -> Part:
        if name in _WORDS:
            return self._part(begin, lambda _: _WORDS[name])
        if name == "device":
            return self._part(begin, lambda seen: seen.variables)
        self._needs("(")
        if name == "has":
            inner = self._within(lambda: self._chain("||"))
            self._needs(")")
            return self._part(begin, lambda seen: _is_there(inner, seen), inner)
        text = _text_of(self._take("text"))
        self._needs(")")
        number = read_quantity(text) if name == "quantity" else None
        if name == "semver":
            version = Version.parse(text)
            return self._part(begin, lambda _: version)
        if number is None:
            self._give_up()
        amount = Amount(number)
        return self._part(begin, lambda _: amount)

    def _list(self, begin: int) -> Part:
        parts: list[Part] = []
        while not self._takes("]"):
            if parts:
                self._needs(",")
            parts.append(self._within(self._unary))
        return self._part(begin, lambda seen: [each.judge(seen) for each in parts], *parts)


def _text_of(token: str) -> str:
    if token[0] in "rR":
        return token[2:-1]
    if any(each not in "\\\"'" for each in _ESCAPE.findall(token)):
        raise NotJudgedError(token)
    return _ESCAPE.sub(r"\1", token[1:-1])


def _joined(parts: list[Part], seen: Seen, *, decides: bool) -> bool:
    """Return what `||` or `&&` come to: one side that ``decides`` is enough, else each has to be known."""
    failed: list[Exception] = []
    for part in parts:
        try:
            if part.holds(seen) is decides:
                return decides
        except (NotJudgedError, NotThereError) as error:
            failed.append(error)
    if failed:
        raise next((each for each in failed if isinstance(each, NotJudgedError)), failed[0])
    return not decides


def _found(of: Any, name: str) -> Any:
    if isinstance(of, defaultdict):  # domains: one that is not there has nothing in it
        return of.get(name, {})
    if not isinstance(of, dict):
        raise NotJudgedError(name)
    if name not in of:
        raise NotThereError(name)
    if of[name] is None:
        raise NotJudgedError(name)
    return of[name]


def _is_there(inner: Part, seen: Seen) -> bool:
    try:
        inner.judge(seen)
    except NotThereError:
        return False
    return True


def _compared(sign: str, left: Any, right: Any) -> bool:
    if sign == "in":
        if isinstance(right, dict) and isinstance(left, str):
            return left in right
        if not isinstance(right, list):
            raise NotJudgedError(sign)
        return any(type(each) is type(left) and each == left for each in right)
    if type(left) is not type(right) or isinstance(left, dict | list):
        raise NotJudgedError(sign)
    if sign in _ORDER:
        if isinstance(left, Amount | Version):
            raise NotJudgedError(sign)
        return bool(_ORDER[sign](left, right))
    return bool((left == right) is (sign == "=="))


def _called(name: str, of: Any, argument: Any) -> Any:
    if name in _IN_TEXT and isinstance(of, str) and isinstance(argument, str):
        return _IN_TEXT[name](of, argument)
    if type(of) is type(argument) and type(of) in (Amount, Version):
        order = (of > argument) - (of < argument)
        if name == "compareTo":
            return order
        if name in ("isGreaterThan", "isLessThan"):
            return order == (1 if name == "isGreaterThan" else -1)
    raise NotJudgedError(name)
