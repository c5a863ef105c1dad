"""Learning to learn: initialisation and learning rates from which five steps on a few points fit a sinusoid.

python -m experiments.learning_to_learn
python -m experiments.learning_to_learn --preset=quick --output_dir=results/learning_to_learn_quick
"""

from experiments.common.study import main
from experiments.learning_to_learn.report import STUDY

if __name__ == "__main__":
    main(STUDY)
