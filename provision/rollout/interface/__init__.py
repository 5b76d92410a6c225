"""Defines what a rollout acts through, what it is told, and what it tells."""
