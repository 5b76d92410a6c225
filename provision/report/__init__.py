"""Shows plans, progress and results: on a terminal, in a log, or as JSON.

The only importer of ``rich``. Decides how something looks, never what is true: the values come from
``provision.planner`` and ``provision.apply``.
"""

from provision.report.builds import builds_document, render_builds
from provision.report.console import make_console
from provision.report.diffs import render_diffs
from provision.report.doctor import doctor_document, render_diagnoses
from provision.report.document import plans_document
from provision.report.drift import render_drift
from provision.report.drift_document import drift_document
from provision.report.history import render_history
from provision.report.live import LiveView, View, open_view
from provision.report.plain import PlainView
from provision.report.plans import render_plans
from provision.report.removal import removals_document, render_cluster_removal, render_removals
from provision.report.results import render_results
from provision.report.rollout import render_rollout, rollout_document
from provision.report.run_document import report_document
from provision.report.runs import render_runs
from provision.report.simulation import render_simulation, simulation_document
from provision.report.status import render_node_status, render_status
from provision.report.status_document import status_document
from provision.report.terminal import show
from provision.report.watching import watch

__all__ = [
    "LiveView",
    "PlainView",
    "View",
    "builds_document",
    "doctor_document",
    "drift_document",
    "make_console",
    "open_view",
    "plans_document",
    "removals_document",
    "render_builds",
    "render_cluster_removal",
    "render_diagnoses",
    "render_diffs",
    "render_drift",
    "render_history",
    "render_node_status",
    "render_plans",
    "render_removals",
    "render_results",
    "render_rollout",
    "render_runs",
    "render_simulation",
    "render_status",
    "report_document",
    "rollout_document",
    "show",
    "simulation_document",
    "status_document",
    "watch",
]
