"""Parses ``NVIDIA_DRIVER_CAPABILITIES``: which parts of the driver a container asks for. Pure."""

from __future__ import annotations

from runtime_hook.base.errors import RequestError, one_line
from runtime_hook.inputs.config import DRIVER_CAPABILITIES
from runtime_hook.request.claim import is_legacy_image

CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
_DEFAULT_CAPABILITIES = ("utility", "compute")


def parse_capabilities(environment: dict[str, str], supported: tuple[str, ...]) -> tuple[str, ...]:
    """Return the driver capabilities asked for, in the order of ``DRIVER_CAPABILITIES``.

    Unset or empty means utility and compute as far as supported; ``all`` everything that is supported; a legacy
    image that says nothing gets everything, too. A name that is not supported refuses the container, as NVIDIA's
    toolkit does.
    """
    text = environment.get(CAPABILITIES_VARIABLE)
    if text is None and is_legacy_image(environment):
        text = "all"
    asked = {word for word in (part.strip() for part in (text or "").split(",")) if word}
    if "all" in asked:
        return supported
    if not asked:
        return tuple(word for word in supported if word in _DEFAULT_CAPABILITIES)
    unsupported = sorted(asked.difference(supported))
    if unsupported:
        raise RequestError(
            f"unsupported driver capabilities {one_line(', '.join(unsupported))}",
            f"supported on this node are {', '.join(supported) or 'none'}",
        )
    return tuple(word for word in DRIVER_CAPABILITIES if word in asked)
