"""Brings nodes to their declaration: gather facts, plan, apply, and again until the plan is empty.

Orchestration only: the planner decides what a node needs, the roles of the collection do it, ``provision.report`` shows
it. No state is kept outside the nodes: whatever is killed half-way is simply run again.
"""
