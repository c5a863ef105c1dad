"""How close each method comes to the hypergradient at the solution, and what it costs."""
