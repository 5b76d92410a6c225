"""Rules across the keys of a rollout."""
