"""Real time on speech: how it depends on its settings and on the amount of speech, compared with other trainings."""
