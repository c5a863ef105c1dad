"""Task interactions at the paper's level of difficulty: weaker features, other numbers of examples, and what C means."""
