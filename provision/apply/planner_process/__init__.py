"""Runs the planner in a process of its own, with limits: whatever one node's files say, it costs that node alone.

`provision.planning.planner` decides. This package has the worker process that plans one node after the other, the
frames that go to it and come back, and the limits on time and memory of one plan.
"""
