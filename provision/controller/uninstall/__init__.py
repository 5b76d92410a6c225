"""Ends the controller of a cluster before its chart is taken away: nothing is in flight then, or it goes on."""
