"""Real time on speech: how its outcome depends on its settings and on the amount of speech, beside other ways to train."""
