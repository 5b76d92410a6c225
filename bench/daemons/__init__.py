"""What a node's device plugin costs, and how soon it notices: the parts of ``bench/plugin.py``.

``subjects`` starts ours as it is installed and NVIDIA's in a mount namespace, each with a kubelet of its own;
``process`` reads what a process has and spends; ``calls`` times calls, ``events`` what happens to a plugin in its life;
``verdict`` holds the figures against the limits and is pure.
"""
