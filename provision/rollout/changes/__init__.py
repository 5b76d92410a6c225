"""Has nodes reboot, go back to their former driver, or lose what grapnel gave them, in the steps of a rollout."""
