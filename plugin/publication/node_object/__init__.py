"""What the daemon says of its GPUs in the Kubernetes API, on its own Node: conditions, events, labels.

Imported only where node.json says how to reach the API. Only here are `ssl` and `http` used (decision 0028).
"""
