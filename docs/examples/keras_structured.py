"""A table with text and numbers, read by `tf.data`, as keras.io writes it; the tuner takes the place of `model.fit`.

python -m docs.examples.keras_structured
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import rfho2 as rf

VOCABULARY = {"sex": ["female", "male"], "pain": ["typical", "atypical", "none"], "thal": ["fixed", "normal", "reversible"]}
NUMBERS = ("age", "pressure", "rate")


def patients(number: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Synthetic patients; whether they are ill depends on all columns."""
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, len(words), number) for name, words in VOCABULARY.items()}
    table = {name: np.array(words)[codes[name]] for name, words in VOCABULARY.items()}
    table |= {"age": rng.normal(55, 9, number), "pressure": rng.normal(130, 17, number), "rate": rng.normal(150, 23, number)}
    score = 1.5 * codes["sex"] - codes["pain"] + codes["thal"] + (table["age"] - 55) / 9 - (table["rate"] - 150) / 23
    return table, (score + rng.logistic(size=number) * 0.5 > 0.7).astype("float32")


def dataset(number: int, seed: int) -> tf.data.Dataset:
    table, ill = patients(number, seed)
    return tf.data.Dataset.from_tensor_slices((table, ill)).shuffle(number, seed=seed).batch(32)


def network(table: dict[str, np.ndarray]) -> keras.Model:
    inputs = {name: keras.Input((1,), name=name, dtype="string" if name in VOCABULARY else "float32") for name in table}
    encoded = []
    for name, words in VOCABULARY.items():
        encoded.append(layers.StringLookup(vocabulary=words, output_mode="one_hot")(inputs[name]))
    for name in NUMBERS:
        normalise = layers.Normalization()
        normalise.adapt(table[name][:, None])
        encoded.append(normalise(inputs[name]))
    x = layers.Dropout(0.2)(layers.Dense(32, "relu")(layers.Concatenate()(encoded)))
    return keras.Model(inputs, layers.Dense(1, "sigmoid")(x))


def main(train: int = 2_000, epochs: int = 5) -> keras.callbacks.History:
    keras.utils.set_random_seed(0)
    model = network(patients(train, 0)[0])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    tuner = rf.RealTimeTuner(model)
    return tuner.fit(dataset(train, 0), validation_data=dataset(500, 1), epochs=epochs)


if __name__ == "__main__":
    main()
