"""From how many hypers on do hypergradients beat a search that takes as long?"""
