"""Speaks to an API server: who one is, requests and their answers, and an end to each."""
