"""Drafts a declaration for machines as they are: the one under which as little as possible would change. Pure.

Facts in, keys of a declaration out, each with where its value is from; candidates are judged by the planner itself.
What no key can say is named. Files are written by ``provision.cli``.
"""
