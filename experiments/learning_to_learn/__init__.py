"""Learning to learn: an initialisation and rates from which five steps on a few points fit a sinusoid."""
