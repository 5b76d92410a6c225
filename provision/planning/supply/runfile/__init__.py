"""Turns NVIDIA's installer files (``.run``) into packages, so that their drivers go the way of every other driver.

Nothing of such a file is ever executed here: its archive is unpacked, its manifest is read, and what a machine without
a screen needs goes into packages with names of their own. What a node does with these is the planner's business.
"""
