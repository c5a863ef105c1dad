"""A network tuned in real time while it learns digits."""
