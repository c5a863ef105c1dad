"""What the experiments share."""
