"""Makes the page of a run: one HTML file with everything in it, for a browser, a ticket or a printer.

The only importer of ``jinja2``. It loads nothing and runs no script; what it shows is ``provision.report.runs.model``.
"""

from provision.report.run_page.render import render_page

__all__ = ["render_page"]
