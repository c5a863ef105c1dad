"""Task interactions at the paper's level of difficulty: weaker features, other numbers of examples, and what C means.

python -m experiments.task_difficulty --preset=quick
python -m experiments.task_difficulty --workers=16   # CIFAR-100 needs the variable RFHO2_CIFAR100_FEATURES
"""

from experiments.common.study import main
from experiments.task_difficulty.report import STUDY

if __name__ == "__main__":
    main(STUDY)
