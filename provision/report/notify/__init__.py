"""Tells others about a running rollout, without ever keeping it waiting: webhooks, and whoever else listens.

``news`` decides what is worth telling (pure), ``signature`` signs it (pure), ``post`` sends one request, ``webhook``
keeps a queue for each receiver, ``receivers`` reads who they are, ``listeners`` passes on what the engine says.
"""
