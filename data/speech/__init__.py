"""Speech: audio files, features, phones, TIMIT in both layouts, and a synthetic corpus."""
