"""The interface of the kubelet's plugin watcher."""
