"""Real time on speech: its settings, the amount of speech, and other ways to train.

python -m experiments.speech_settings --preset=quick --workers=2
python -m experiments.speech_settings --corpus=timit_sample --workers=4   # on a GPU
"""

from experiments.common.study import main
from experiments.speech_settings.report import STUDY

if __name__ == "__main__":
    main(STUDY)
