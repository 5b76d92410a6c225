"""How a driver reaches the fleet, as declared: policy, domains, drain, gates, notifications, times."""
