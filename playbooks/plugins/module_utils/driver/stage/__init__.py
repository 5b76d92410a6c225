"""Stages driver changes on the node: prepares them, and looks at them again. Nothing that runs is disturbed."""
