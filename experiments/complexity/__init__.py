"""Appendix A of the paper: what a hypergradient costs."""
