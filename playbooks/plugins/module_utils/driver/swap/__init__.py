"""Carries out a run out of service: steps to a target, in a unit of their own, each written down before it begins."""
