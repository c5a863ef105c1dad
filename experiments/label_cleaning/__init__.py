"""Finding wrong labels: learned weights, refitting, and what users do instead."""
