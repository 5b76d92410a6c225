"""Plays roll-outs in virtual time: the real engine and the real decisions on machines that are made up.

Knows how long steps take and what may go wrong; decides nothing about a roll-out. What is simulated are the API
server, the nodes and the passing of time.
"""
