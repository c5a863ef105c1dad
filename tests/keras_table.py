"""The table of what the Keras bridge supports in docs/keras.md, made from the cases that the tests run.

`python -m tests.keras_table` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import keras

from tests.support import keras_cases as cases
from tests.support.markdown import replaced

PAGE = Path(__file__).parents[1] / "docs" / "keras.md"
BEGIN = "<!-- cases: written by `python -m tests.keras_table` -->"
END = "<!-- end of cases -->"
PREFIXES = ("activation ", "loss ", "loss, ", "compiled ", "regulariser ")
KINDS = {  # with the names of what is refused; of layers, what is left
    "models": (cases.MODELS, "train_step|compute_loss"),
    "losses": (cases.LOSSES, "^loss"),
    "optimizers": (cases.OPTIMIZERS, "^compiled"),
    "constraints": (cases.CONSTRAINTS, "constraint"),
    "layers": (cases.LAYERS, ""),
}
PLACES = (keras.layers, keras.optimizers, keras.applications, keras.constraints, keras.regularizers)


def shown(name: str) -> str:
    """The name of a case as a reader would write it: what is in the code in the code's letters."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return re.sub(r"[\w.]+(=\w+)?", lambda word: f"`{word[0]}`" if _is_code(word[0]) else word[0], name)


def _is_code(word: str) -> bool:
    in_keras = any(hasattr(place, word) for place in PLACES) and word[0].isupper()
    return in_keras or word in cases.ACTIVATIONS or bool(re.search(r"[_=]|^tf\.|clipnorm|clipvalue|amsgrad", word))


def table() -> str:
    """A row for each kind: the cases in which training is Keras's, and those that are refused."""
    rows, left = ["| | supported | refused before training begins |", "|---|---|---|"], list(cases.REFUSED)
    for kind, (works, pattern) in KINDS.items():
        refused = [name for name in left if re.search(pattern, name)]
        left = [name for name in left if name not in refused]
        rows.append(f"| {kind} | {'; '.join(map(shown, works))} | {'; '.join(map(shown, refused))} |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """The text of the page with the present table between its two markers."""
    return replaced(text, BEGIN, END, table())


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
