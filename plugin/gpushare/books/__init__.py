"""Who has which memory units: nodes, cards and pods, what is promised, and where the next pod fits. Pure."""
