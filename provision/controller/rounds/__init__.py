"""Carries out rounds, and takes what they say."""
