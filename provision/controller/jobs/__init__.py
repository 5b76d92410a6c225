"""Runs playbooks on the nodes of a cluster through its API alone: as a Job on the node, which acts on its own host.

The controller has no ssh and no key of any node; the host gets no Ansible. A run is a Secret that says what to do, a
Job that is bound to the node, and what the Job's pod writes into its log.
"""
