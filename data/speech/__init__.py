"""Speech: audio files, acoustic features, phones, TIMIT in two layouts, and a synthetic corpus."""
