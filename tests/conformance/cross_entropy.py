"""The cross-entropy ops on rows that matter, the same on every device, every variant forced: labels that are ignored or wrong, infinities
and NaN, masked columns, large logits, vocabularies around every limit and rows that begin anywhere, no rows at all."""

import numpy as np

from conformance import family

LENGTHS = [1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 127, 250, 256, 513, 1000, 1024, 2047, 4100, 8192, 10001, 16391]
LONG = [36864, 50257, 73728, 128256, 151939, 262144]
SMOOTHED = {"label_smoothing": 0.1, "z_loss": 1e-3}
OPS = ("loss_forward", "loss_backward", "loss_and_gradient", "loss_and_gradient_in_place")
SPECIAL = ["plain", "huge", "masked", "only the label", "label masked", "all masked", "inf", "nan", "equal", "ignored", "wrong", "negative"]


def special(rng, length, kind):
    """(row, label)"""
    x, label = 3 * rng.standard_normal(length), int(rng.integers(length))
    other = (label + 1) % length
    if kind == "huge":
        x *= 5000
    elif kind in ("masked", "only the label"):
        x = np.where(np.arange(length) % 3 == 0 if kind == "masked" else True, -np.inf, x)
        x[label] = 2
    elif kind == "label masked":
        x[label] = -np.inf
    elif kind == "all masked":
        x[:] = -np.inf
    elif kind in ("inf", "nan"):
        x[other] = np.inf if kind == "inf" else np.nan
    elif kind == "equal":
        x[:] = -7.5
    labels = {"ignored": -100, "wrong": length, "negative": -3}
    if kind == "ignored":
        x[0] = np.nan  # nobody looks
    return x, labels.get(kind, label)


def of_op(op, reference, logits, labels, rng):
    given = {"logits": logits, "labels": np.asarray(labels, np.int32)}
    if op == "loss_backward":
        given["lse"] = reference.loss_forward(logits, given["labels"])[1]
    return given | ({} if op == "loss_forward" else {"dloss": 0.25 + rng.random(logits.shape[:-1])})


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64 or integers."""
    for op in OPS:
        for length in LENGTHS + LONG:
            for rows in (0, 1, 5) if length < 5000 else (2,):
                rng = np.random.default_rng(length + rows)
                logits = 3 * rng.standard_normal((rows, length)) + 5 * rng.standard_normal((rows, 1))
                labels = rng.integers(0, length, rows)
                labels[rows // 2:rows // 2 + 1] = -100 if length % 2 and rows > 1 else 0
                yield f"{rows} x {length}", op, of_op(op, reference, logits, labels, rng), SMOOTHED if length % 2 else {}
        rng = np.random.default_rng(1)
        logits, labels = rng.standard_normal((7, 100, 96)), rng.integers(0, 96, (7, 100))
        yield "many rows, another label ignored", op, of_op(op, reference, logits, labels, rng), {"ignore_index": 5}
        yield "smoothed throughout", op, of_op(op, reference, logits, labels, rng), {"label_smoothing": 1.0}
        for length in (33, 1024, 4099, 20000):
            rng = np.random.default_rng(length)
            for how in ({}, SMOOTHED):
                rows = [special(rng, length, kind) for kind in SPECIAL]
                logits, labels = np.stack([x for x, _ in rows]), [label for _, label in rows]
                yield f"{length}, special rows", op, of_op(op, reference, logits, labels, rng), how


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for. What a tolerance is relative to is 1 at least: a gradient of a label
    that is nearly certain is what is left of 1 - 1, and so is a loss."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("cross_entropy", cases, bundle_path, device, roots)

    def prepare(self, *case):
        with np.errstate(all="ignore"):
            return super().prepare(*case)

    def judge(self, outcome, op, name, found, wanted):
        beside = lambda array: np.concatenate([array, np.ones_like(array, shape=(*array.shape[:-1], 1))], axis=-1)
        super().judge(outcome, op, name, [beside(array) for array in found], [beside(array) for array in wanted])
