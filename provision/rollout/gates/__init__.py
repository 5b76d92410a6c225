"""Asks the gates of a rollout, beside it: queries to a monitoring system.

What is declared is `provision.declaration.spec.model.rollout.gates`; what the rollout wants to know is
`provision.rollout.interface.gates`.
"""

from provision.rollout.gates.keeper import GateKeeper, ask_once

__all__ = ["GateKeeper", "ask_once"]
