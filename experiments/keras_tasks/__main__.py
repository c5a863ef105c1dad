"""Fifteen small Keras tasks: a learning rate tuned in real time, compared with fixed, planned and searched rates.

python -m experiments.keras_tasks --preset=quick
python -m experiments.keras_tasks --preset=development --output_dir=results/keras_tasks/development
python -m experiments.keras_tasks --preset=frozen --output_dir=results/keras_tasks/frozen
python -m experiments.keras_tasks --preset=later --output_dir=results/keras_tasks/later
"""

from experiments.common.study import main
from experiments.keras_tasks.report import STUDY

if __name__ == "__main__":
    main(STUDY)
