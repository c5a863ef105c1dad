"""How near each way to a hypergradient comes to the one at the solution, and what it costs."""
