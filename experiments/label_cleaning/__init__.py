"""Finding wrong labels: learned weights, refitting, and the usual alternatives."""
