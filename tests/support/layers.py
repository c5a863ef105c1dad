"""The layers of the library: which folder may import which."""

LAYERS = [  # lowest first; a folder imports from lower layers and from itself only
    ["core"],
    ["constraints", "batches", "dynamics"],
    ["problem"],
    ["hypergradients"],
    ["planning", "driver"],
    ["monitor", "distribute", "memory"],
    ["keras_bridge"],
]
