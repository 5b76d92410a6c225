"""The verbs for an upgrade that goes wrong, and what they share."""
