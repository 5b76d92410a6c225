"""Which pod has which device, as the kubelet's pod resources interface says."""
