"""What happened in past runs: each is written down while it goes on, and read as one document afterwards.

A run is one command that changes machines, or prepares that. Its folder holds the events, a log for people and what
Ansible said (``docs/contracts/run-event``). How a run is shown: ``provision.report``, ``provision.report.run_page``.
"""
