"""Checks ``NVIDIA_REQUIRE_*``: what an image says it needs of driver and GPU. Pure.

A requirement is a list of terms, separated by spaces, of which one must hold; a term is a list of factors, separated by
commas, which must all hold; a factor is ``cuda``, ``driver``, ``arch`` or ``brand``, an operator, and a value.
Several variables must all be met. Source: NVIDIA's libnvidia-container, ``src/cli/dsl.c``, which its documentation
describes; as there, terms behind the first that holds are not looked at.
"""

from __future__ import annotations

from runtime_hook.base.errors import RequestError, RequirementError, one_line
from runtime_hook.base.values import value
from runtime_hook.request.claim import REQUIRE_PREFIX, is_legacy_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_hook.host.inventory import Gpu, Inventory

DISABLE_VARIABLE = "NVIDIA_DISABLE_REQUIRE"
_JETPACK_PREFIX = "NVIDIA_REQUIRE_JETPACK"
_LEGACY_VARIABLE = "CUDA_VERSION"
# What Go's strconv.ParseBool takes for true.
_TRUE_WORDS = ("1", "t", "T", "TRUE", "true", "True")
_OPERATOR_LETTERS = "<>=!"
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_BRAND = "brand"
_PROPERTIES = ("cuda", "driver", "arch", _BRAND)
_LIMIT = 1 << 16
_MAX_LEGACY_PARTS = 3
_MAX_LEGACY_NUMBER = str((1 << 32) - 1)
_LEGACY_HINT = f"set one to three numbers, such as 9.0.176, or NVIDIA_REQUIRE_CUDA; {DISABLE_VARIABLE}=1 checks nothing"
_HINT = "take a node or an image that fits; NVIDIA_DISABLE_REQUIRE=1 starts it all the same"


@value
class Finding:
    """Whether one requirement is met on one GPU ("" for a request without any).

    ``failed`` is the factor that does not hold and what is there instead, ``unknown`` the properties that are not known
    and that counted as met.
    """

    variable: str
    text: str
    gpu: str
    is_met: bool
    failed: str = ""
    unknown: tuple[str, ...] = ()


def find_requirements(environment: dict[str, str], *, is_disabled: bool) -> dict[str, str]:
    """Return the requirements of an image: variable → text, a legacy image's CUDA version among them."""
    if is_disabled or environment.get(DISABLE_VARIABLE) in _TRUE_WORDS:
        return {}
    found = {
        name: text
        for name, text in environment.items()
        if name.startswith(REQUIRE_PREFIX) and not name.startswith(_JETPACK_PREFIX)
    }
    if is_legacy_image(environment):
        found[_LEGACY_VARIABLE] = f"cuda>={_legacy_version(environment[_LEGACY_VARIABLE])}"
    if sum(map(len, found.values())) > _LIMIT:
        raise RequestError(f"the image's {REQUIRE_PREFIX}* are longer than {_LIMIT >> 10} KiB")
    return found


def evaluate(requirements: dict[str, str], inventory: Inventory, gpus: tuple[Gpu, ...]) -> tuple[Finding, ...]:
    """Compare every requirement with every GPU; without any, once with the driver alone.

    RequestError for an invalid factor.
    """
    return tuple(_findings(requirements, inventory, gpus))


def check_findings(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Refuse with RequirementError what is not met; return a note for each property that is not known."""
    notes: dict[str, None] = {}
    for finding in findings:
        if not finding.is_met:
            where = f" on {finding.gpu}" if finding.gpu else ""
            what = f"{one_line(finding.variable, 100)} is not met{where}: {finding.failed}"
            raise RequirementError(what, _HINT, f"{finding.variable}: {finding.failed}")
        for name in finding.unknown:
            notes[f"{one_line(finding.variable, 100)}: {name} is not known and counts as met"] = None
    return tuple(notes)


def compare_versions(left: str, right: str) -> int:
    """Return the sign of left - right: dotted numbers of any length, zeros at the end do not count."""
    one, other = _numbers(left), _numbers(right)
    return (one > other) - (one < other)


def is_version(text: str) -> bool:
    """Tell whether a text is a dotted number."""
    return text.isascii() and all(part.isdigit() for part in text.split("."))


def _numbers(version: str) -> list[tuple[int, str]]:
    """Return what compares as the numbers do: their length without leading zeros, and their digits.

    Never ``int``: its cost grows with the square of the digits, and the text is the image's.
    """
    digits = [part.lstrip("0") for part in version.split(".")]
    while digits and not digits[-1]:
        digits.pop()
    return [(len(part), part) for part in digits]


def _legacy_version(text: str) -> str:
    """Return major and minor of a legacy image's CUDA_VERSION, such as ``9.0`` of ``9.0.176``.

    As NVIDIA's hook does, which refuses a fourth number, letters behind any, zeros before any, and numbers of more than
    32 bits (``parseMajorMinorVersion``, golang.org/x/mod/semver).
    """
    parts = text.removeprefix("v").split(".")
    is_padded = any(len(part) > 1 and part.startswith("0") for part in parts)
    is_long = any(compare_versions(part, _MAX_LEGACY_NUMBER) > 0 for part in parts[:2])
    if len(parts) > _MAX_LEGACY_PARTS or not is_version(".".join(parts)) or is_padded or is_long:
        raise RequestError(f"{_LEGACY_VARIABLE} {one_line(text, 100)!r} is no version", _LEGACY_HINT)
    return ".".join(parts[:2])


def _findings(requirements: dict[str, str], inventory: Inventory, gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
    of_driver = {"cuda": inventory.cuda_version, "driver": inventory.driver_version}
    for variable, text in requirements.items():
        known: dict[tuple[str, str], Finding] = {}  # GPUs of one kind have one answer
        for gpu in gpus or (None,):
            kind = (gpu.compute_capability, gpu.brand) if gpu else ("", "")
            if kind not in known:
                found = {**of_driver, "arch": kind[0], _BRAND: kind[1]}
                known[kind] = _evaluate(variable, text, found)
            finding = known[kind]
            yield Finding(variable, text, gpu.uuid if gpu else "", finding.is_met, finding.failed, finding.unknown)


def _evaluate(variable: str, text: str, found: dict[str, str]) -> Finding:
    """Look for a term that holds; what is told of a requirement that has none is its first term's failure."""
    failures: list[str] = []
    for term in text.split(" "):
        factors = [factor for factor in term.split(",") if factor]
        if not factors:
            continue
        unknown: list[str] = []
        failed = next((factor for factor in factors if not _holds(variable, factor, found, unknown)), "")
        if not failed:
            return Finding(variable, text, "", is_met=True, unknown=tuple(unknown))
        failures.append(failed)
    if not failures:
        return Finding(variable, text, "", is_met=True)
    others = f", nor does one of {len(failures) - 1} alternatives hold" if len(failures) > 1 else ""
    name = _split(variable, failures[0])[0]
    failed = f"{one_line(failures[0], 128)} fails, as {name} is {found[name]}{others}"
    return Finding(variable, text, "", is_met=False, failed=failed)


def _holds(variable: str, factor: str, found: dict[str, str], unknown: list[str]) -> bool:
    name, operator, wanted = _split(variable, factor)
    if name == _BRAND:
        if operator not in {"=", "!="}:
            raise _invalid(variable, factor)
    elif not is_version(wanted):
        raise _invalid(variable, factor)
    present = found[name]
    if not present or (name != _BRAND and not is_version(present)):
        unknown.append(name)
        return True
    if name == _BRAND:
        return (present.lower() == wanted.lower()) == (operator == "=")
    sign = compare_versions(present, wanted)
    return {
        "=": sign == 0,
        "!=": sign != 0,
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
    }[operator]


def _split(variable: str, factor: str) -> tuple[str, str, str]:
    """Return property, operator and value of a factor."""
    head = factor
    for letter in _OPERATOR_LETTERS:
        head = head.partition(letter)[0]
    rest = factor[len(head) :]
    wanted = rest.lstrip(_OPERATOR_LETTERS)
    operator = rest[: len(rest) - len(wanted)]
    name = head.lower()
    if name not in _PROPERTIES or operator not in _OPERATORS or not wanted:
        raise _invalid(variable, factor)
    return name, operator, wanted


def _invalid(variable: str, factor: str) -> RequestError:
    return RequestError(
        f"{one_line(variable, 100)}: {one_line(factor, 128)!r} is no requirement",
        f"one is a property ({', '.join(_PROPERTIES)}), an operator ({' '.join(_OPERATORS)}) and a version or brand",
    )
