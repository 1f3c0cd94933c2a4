"""The cross-entropy ops on rows that matter, the same on every device, every variant forced: labels that are ignored or wrong, infinities
and NaN, masked columns, large logits, vocabularies around every limit and rows that begin anywhere, no rows at all, and so many that their
losses are summed in parts; labels of both types."""

import numpy as np

from conformance import family

LENGTHS = [1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 127, 250, 256, 513, 1000, 1024, 2047, 4100, 8192, 10001, 16391]
LONG = [36864, 50257, 73728, 128256, 151939, 262144]
SMOOTHED = {"label_smoothing": 0.1, "z_loss": 1e-3}
OPS = ("loss_forward", "loss_backward", "loss_and_gradient", "loss_and_gradient_in_place",
       "reduced_forward", "reduced_backward", "reduced_and_gradient")
SPECIAL = ["plain", "huge", "masked", "only the label", "label masked", "all masked", "inf", "nan", "equal",
           "ignored", "wrong", "negative", "cancelling"]
FAR = [2**31, -2**31 - 1, 2**32, 2**32 - 100, -2**63, 2**63 - 1]  # labels of int64 that are wrong, whatever is left of them in int32
MANY = [8192, 8193, 40001]  # rows that are summed in one part, in two, in five


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
    elif kind == "cancelling":  # the largest logit is minus the logarithm of the sum, all but a little
        x /= 3
        x -= np.log(np.sum(np.exp(x))) + 1e-4
    labels = {"ignored": -100, "wrong": length, "negative": -3}
    if kind == "ignored":
        x[0] = np.nan  # nobody looks
    return x, labels.get(kind, label)


def of_op(op, reference, logits, labels, rng, label_dtype=np.int32, reduction="mean", ignore_index=-100):
    given = {"logits": logits, "labels": np.asarray(labels, label_dtype)}
    if op.endswith("_backward"):
        given["lse"] = reference.loss_forward(logits, given["labels"], ignore_index=ignore_index)[1]
    if op == "reduced_backward" and reduction == "mean":
        given["share"] = np.asarray(1 / max(1, np.count_nonzero(given["labels"] != ignore_index)))
    if op.endswith("_forward"):
        return given
    return given | {"dloss": 0.25 + rng.random(() if op.startswith("reduced") else logits.shape[:-1])}


def attributes_of(op, how, reduction):
    return how | ({"reduction": reduction} if op in ("reduced_forward", "reduced_and_gradient") else {})


def drawn(rng, rows, length):
    return 3 * rng.standard_normal((rows, length)) + 5 * rng.standard_normal((rows, 1)), rng.integers(0, length, rows)


def cases(reference):
    """(name, op, operands by name, attributes) with arrays in float64 or integers."""
    for op in OPS:
        for reduction in ("mean", "sum") if op.startswith("reduced") else (None,):
            yield from (case for rows in (usual_cases, special_cases, many_rows) for case in rows(reference, op, reduction))


def usual_cases(reference, op, reduction):
    for length in LENGTHS + LONG:
        for rows in (0, 1, 5) if length < 5000 else (2,):
            rng = np.random.default_rng(length + rows)
            logits, labels = drawn(rng, rows, length)
            labels[rows // 2:rows // 2 + 1] = -100 if length % 2 and rows > 1 else 0
            yield (f"{rows} x {length}", op, of_op(op, reference, logits, labels, rng, reduction=reduction),
                   attributes_of(op, SMOOTHED if length % 2 else {}, reduction))
    rng = np.random.default_rng(1)
    logits, labels = rng.standard_normal((7, 100, 96)), rng.integers(0, 96, (7, 100))
    yield ("many rows, another label ignored", op, of_op(op, reference, logits, labels, rng, reduction=reduction, ignore_index=5),
           attributes_of(op, {"ignore_index": 5}, reduction))
    yield ("smoothed throughout", op, of_op(op, reference, logits, labels, rng, reduction=reduction),
           attributes_of(op, {"label_smoothing": 1.0}, reduction))
    if op.endswith("and_gradient") or op.endswith("in_place"):
        given = of_op(op, reference, logits, labels, rng, reduction=reduction)
        del given["dloss"]
        yield "a gradient of one", op, given, attributes_of(op, SMOOTHED, reduction)


def special_cases(reference, op, reduction):
    """Of a reduced loss what is wrong in a row is wrong in the loss: the others are cases by themselves."""
    for length in (33, 1024, 4099, 20000):
        rng = np.random.default_rng(length)
        for how in ({}, SMOOTHED):
            rows = [special(rng, length, kind) for kind in SPECIAL]
            logits, labels = np.stack([x for x, _ in rows]), np.array([label for _, label in rows])
            for name, kept in (("special rows", slice(None)), ("special rows that are finite", [0, 1, 8, 9, 12])):
                yield (f"{length}, {name}", op, of_op(op, reference, logits[kept], labels[kept], rng, reduction=reduction),
                       attributes_of(op, how, reduction))
        rng = np.random.default_rng(length + 1)
        logits, labels = drawn(rng, 8, length)
        yield (f"{length}, all ignored", op, of_op(op, reference, logits, np.full(8, -100), rng, reduction=reduction),
               attributes_of(op, SMOOTHED, reduction))
        for name, label in [("near", -100), *(("far", far) for far in FAR)]:
            labels[3] = label
            yield (f"{length}, labels of int64, {name} {label}", op, of_op(op, reference, logits, labels, rng, np.int64, reduction),
                   attributes_of(op, {}, reduction))


def many_rows(reference, op, reduction):
    for rows in MANY if op.startswith("reduced") else MANY[:1]:
        rng = np.random.default_rng(rows)
        logits, labels = drawn(rng, rows, 5)
        labels[rng.random(rows) < 0.3] = -100
        yield (f"{rows} short rows", op, of_op(op, reference, logits, labels, rng, np.int64 if rows % 2 else np.int32, reduction),
               attributes_of(op, {}, reduction))


def terms(logits, labels, lse, *, label_smoothing=0.0, z_loss=0.0, **_):
    """Of each row the largest number that its loss and its log-sum-exp are made of, and so what rounding is relative to where these cancel:
    the largest logit, that of the label, and 1, since the sum of the exponentials is 1 at least. A masked logit is none."""
    finite = np.where(np.isfinite(logits), logits, 0.0)
    column = np.clip(labels, 0, logits.shape[-1] - 1).astype(np.int64)[..., None]
    given = [np.max(logits, axis=-1, initial=-np.inf), np.take_along_axis(finite, column, -1)[..., 0], lse, z_loss * lse * lse,
             label_smoothing * np.mean(np.abs(finite), axis=-1)]
    return np.max([np.ones(lse.shape)] + [np.where(np.isfinite(term), np.abs(term), 0.0) for term in given], axis=0)


class Cases(family.Cases):
    """Each variant of the family on each case that it is legal for. A loss and a log-sum-exp are judged row by row, by what they are made of
    (terms). What a gradient's tolerance is relative to is 1 at least: that of a label that is nearly certain is what is left of 1 - 1."""

    def __init__(self, bundle_path, device, roots):
        super().__init__("cross_entropy", cases, bundle_path, device, roots)

    def prepare(self, op, types, name, kind, given, attributes):
        if given["labels"].dtype == np.int64 and types["L"] != "i64":
            return None
        with np.errstate(all="ignore"):
            return super().prepare(op, types, name, kind, given, attributes)

    def wanted(self, op, problem, arrays):
        """Behind what is wanted the terms of each row, and what they are multiplied by in a loss that is reduced."""
        operands = {o["name"]: array for o, array in zip(op["operands"], arrays)}
        logits, labels = operands["logits"].astype(np.float64), operands["labels"]
        lse = self.reference.loss_forward(logits, labels, ignore_index=problem.attributes.get("ignore_index", -100))[1]
        return [*super().wanted(op, problem, arrays), terms(logits, labels, lse, **problem.attributes)]

    def judge(self, outcome, op, name, found, wanted):
        *wanted, size = wanted
        sides = [None if array is None else self.beside(op, number, array, wanted, size) for number, array in enumerate(found)]
        super().judge(outcome, op, name, [s and s[0] for s in sides], [s and s[1] for s in sides])

    @staticmethod
    def beside(op, number, array, wanted, size):
        """A result and what is wanted, with what its tolerance is relative to at least as one more column."""
        results = [result["name"] for result in op["results"]]
        rows = results[number] in ("loss", "lse")
        least = size if rows else np.ones((*np.shape(array)[:-1],))
        if rows and array.ndim < size.ndim:  # of a reduced loss the rows' together, or their mean
            share = wanted[results.index("share")] if "share" in results else None
            least = np.sum(size) * (1 if share is None else share)
        values = [np.asarray(side)[..., None] if rows else np.atleast_1d(side) for side in (array, wanted[number])]
        column = np.asarray(least, array.dtype)[..., None]
        return [np.concatenate([value, column.astype(value.dtype)], axis=-1) for value in values]
