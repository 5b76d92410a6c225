"""Version v1beta1, the only one that a kubelet speaks so far."""
