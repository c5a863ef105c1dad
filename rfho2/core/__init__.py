"""The foundation: types, arithmetic on nests, checks of what users pass, loops over time, compilation."""
