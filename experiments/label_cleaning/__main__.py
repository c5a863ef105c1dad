"""Finding wrong labels: learned weights and refits, compared with what users do otherwise.

python -m experiments.label_cleaning --preset=quick
python -m experiments.label_cleaning
"""

from experiments.common.study import main
from experiments.label_cleaning.report import STUDY

if __name__ == "__main__":
    main(STUDY)
