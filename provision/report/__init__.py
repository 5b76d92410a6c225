"""Shows plans, progress and results: on a terminal, in a log, or as JSON.

The only importer of ``rich``. Decides how something looks, never what is true: the values come from
``provision.planning.planner`` and ``provision.apply``. Nothing is imported here: a verb imports what it shows.
"""
