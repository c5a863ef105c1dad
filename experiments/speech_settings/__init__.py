"""Real time on speech: how its outcome depends on its settings and on the amount of speech, and other ways to train."""
