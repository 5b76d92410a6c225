"""Copies into the chart what it shares with `kubectl apply`: a chart reads no file beside its own folder.

`python -P -m tasks.generated.chart` writes deploy/chart/grapnel/files; a test holds them to their sources.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "chart" / "grapnel"
ROLES: Final = ("compute-domains", "controller", "node", "node-claims", "operator", "telling", "tenancy", "uninstall")


def copies() -> dict[Path, Path]:
    """Return which file of `deploy` each file below `files` of the chart is a copy of."""
    files = CHART / "files"
    return {
        **{files / path.name: path for path in sorted(DEPLOY.joinpath("crd").glob("*.yaml"))},
        **{files / "dra" / path.name: path for path in sorted(DEPLOY.joinpath("dra").glob("*.yaml"))},
        files / "daemonset" / "grapnel-node.yaml": DEPLOY / "daemonset" / "grapnel-node.yaml",
        **{files / "rbac" / f"{name}.yaml": DEPLOY / "rbac" / f"{name}.yaml" for name in ROLES},
        **{files / "rules" / path.name: path for path in sorted(DEPLOY.joinpath("prometheus").glob("*.rules.yml"))},
        **{files / "dashboards" / path.name: path for path in sorted(DEPLOY.joinpath("grafana").glob("*.json"))},
    }


if __name__ == "__main__":
    for copy, source in copies().items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    sys.exit(0)
