"""What `bench/scale.py` measures: a controller with fleets of Nodes and pods on a real API server, without machines.

`objects` are what is in the cluster, `kubelets` plays what its nodes would say, `lead` is the controller's process and
`processes` how it is looked at, `requests` what an API server counts, `peer` who lists everything every two minutes,
`fleet` a fleet of one size, `jobs` what Jobs cost, `figures` what was found, `curves` its pictures.
"""
