"""Ways to choose the learning rate of long training runs, given the same time.

python -m experiments.long_training --preset=quick        # two minutes
python -m experiments.long_training --preset=development  # the problems on which methods are compared first
python -m experiments.long_training                       # all of them
"""

from experiments.common.study import main
from experiments.long_training.report import STUDY

if __name__ == "__main__":
    main(STUDY)
