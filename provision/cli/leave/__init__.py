"""The verb that gives nodes back."""
