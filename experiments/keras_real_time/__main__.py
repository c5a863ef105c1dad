"""A Keras CNN tuned in real time, compared with random search: accuracy and time.

python -m experiments.keras_real_time --preset=quick
python -m experiments.keras_real_time --preset=full
"""

from experiments.common.study import main
from experiments.keras_real_time.report import STUDY

if __name__ == "__main__":
    main(STUDY)
