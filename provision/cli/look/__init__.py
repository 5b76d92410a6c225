"""The verbs that say how nodes stand."""
