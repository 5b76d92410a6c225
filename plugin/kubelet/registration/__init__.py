"""How a kubelet hears of a resource, and keeping it registered whenever the kubelet is replaced."""
