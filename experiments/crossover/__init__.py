"""How many hypers does it take for hypergradients to beat a search that takes as long?"""
