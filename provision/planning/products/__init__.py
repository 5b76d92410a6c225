"""Recognises what other products have left on a node, and says what it means and what to do about it. Pure.

Facts in, products out. What a plan does about any of it belongs to ``provision.planning.planner``; the pages for people
are ``docs/migrate/``.
"""
