"""The verbs that say beforehand what would happen, and what they share."""
