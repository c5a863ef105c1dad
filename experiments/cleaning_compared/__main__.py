"""Data hyper-cleaning beside what users do instead, where trusted digits are few, different or unbalanced.

python -m experiments.cleaning_compared --preset=quick
python -m experiments.cleaning_compared --workers=16
"""

from experiments.cleaning_compared.report import STUDY
from experiments.common.study import main

if __name__ == "__main__":
    main(STUDY)
