"""Says to which hosts the Secrets of the controller's pod may be sent: by its administrator, not by a GpuStack. Pure.

Whoever may write a GpuStack names both the file and the server of a gate: without a list of the administrator's, every
token that is mounted would go wherever the author of a GpuStack likes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.declaration.spec.model import Rollout

FILES: Final = "/etc/grapnel/controller"  # of the controller's pod: what gates and notifications may read
VALUE: Final = "controller.secretHosts"  # of the chart
OPTION: Final = "--secret-hosts"
_SECRET: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOST: Final = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?")
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class SecretHosts:
    """The hosts of each Secret, by the name of its folder below ``FILES``: HOST, or HOST:PORT for that port alone.

    A Secret that is not named is sent nowhere.
    """

    by_secret: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def refusals(self, rollout: Rollout) -> Iterator[str]:
        """Yield every key that would send a Secret to a host that is not listed for it.

        A URL that is a Secret itself (`urlFile`) goes where its administrator has written it to.
        """
        named = [
            *((f"gates[{n}].tokenFile", each.token_file, each.prometheus) for n, each in enumerate(rollout.gates)),
            *((f"notify[{n}].secretFile", each.secret_file, each.url) for n, each in enumerate(rollout.notify)),
        ]
        for key, path, url in named:
            secret = _secret_of(path)
            if secret is None or url is None or self._allows(secret, url):
                continue
            listed = ", ".join(sorted(self.by_secret.get(secret, ()))) or "no host"
            yield (
                f"spec.rollout.{key}: Secret {secret} may not be used with {urlsplit(url).netloc}: "
                f"{VALUE}.{secret} of the chart ({OPTION}) lists {listed}"
            )

    def _allows(self, secret: str, url: str) -> bool:
        parts = urlsplit(url)
        try:
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError:  # a port that there is not
            return False
        listed = (urlsplit(f"//{each}") for each in self.by_secret.get(secret, ()))
        return any(each.hostname == parts.hostname and each.port in {None, port} for each in listed)


NOWHERE: Final = SecretHosts()


def parse_secret_hosts(texts: Iterable[str]) -> SecretHosts:
    """Return what options say, each ``SECRET=HOST,HOST``; raises ValueError with what is wrong."""
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        secret, equals, rest = text.partition("=")
        hosts = rest.split(",")
        if not equals or not _SECRET.fullmatch(secret):
            raise ValueError(f"'{text}' does not begin with the name of a Secret and '='")
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"'{host}' is not HOST or HOST:PORT")
        found[secret] = found.get(secret, frozenset()) | frozenset(hosts)
    return SecretHosts(found)


def _secret_of(path: str | None) -> str | None:
    """Return the name of the Secret that holds a file, None where none does, which `local_keys` judges."""
    if path is None or not PurePosixPath(path).is_relative_to(FILES):
        return None
    return next(iter(PurePosixPath(path).relative_to(FILES).parts), None)
