"""The foundation: types, arithmetic on nests, checks of user input, loops over time, compilation."""
