"""How far a hypergradient in real time should look back."""
