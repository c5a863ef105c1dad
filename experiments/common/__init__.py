"""What the binaries share."""
