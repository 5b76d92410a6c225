"""The verbs that change nodes."""
