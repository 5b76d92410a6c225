"""GPUs by dynamic resource allocation: a driver of the kubelet's (`DRAPlugin`) and of the API (ResourceSlices).

The scheduler chooses devices for a ResourceClaim and writes them into its status; the kubelet has a claim prepared
before a pod's containers are made. Loaded only where a node declares it, or still has claims from then.
"""
