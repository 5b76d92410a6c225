"""The verbs that the chart runs."""
