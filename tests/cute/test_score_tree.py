"""A score modifier put together from its tree, as FlashAttention-4's kernels have it, computes what its text says: value and derivative of a
block of scores against float64, element by element, with NumPy in place of a GPU's operations; and what elements share is made once.
"""

import importlib.util
import json
import math
import pathlib

import numpy as np
import pytest
from conformance import runner
from conformance.modified_attention import FAMILY

HERE = pathlib.Path(__file__).resolve().parent
TREES = json.loads((HERE / "score_trees.json").read_text())
LENGTHS = dict(zip("bhqk", (2, 3, 40, 50)))
FIRST = {"b": 1, "h": 2, "q": 16, "k": 24}
QUERIES, KEYS = range(8), range(10)
SCALE = 0.37
spec = importlib.util.spec_from_file_location("score_tree", FAMILY / "score_tree.py")
score_tree = importlib.util.module_from_spec(spec)
spec.loader.exec_module(score_tree)


class Doubles(score_tree.Operations):
    """Counts what is computed."""
    count = 0

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "count":
            Doubles.count += 1
        return object.__getattribute__(self, name)

    def inverse(self, a):
        return np.float64(1.0) / a

    abs, sqrt, log = staticmethod(np.abs), staticmethod(np.sqrt), staticmethod(np.log)
    erf = staticmethod(math.erf)
    pow = staticmethod(np.power)

    def exp(self, a):
        return np.exp(a)

    def tanh(self, a):
        return np.tanh(a)

    def sigmoid(self, a):
        return 1 / (1 + np.exp(-a))


class Block:
    """Random scores of a block in the middle of a problem, and a modifier on them."""

    def __init__(self, one, chance):
        self.tree, self.reads = one["tree"], []
        self.reference = runner.load_reference("attention", [FAMILY]).Modifier(one["text"])
        self.x = chance.standard_normal((len(QUERIES), len(KEYS)))
        self.scalars = [np.float32(chance.uniform(0.4, 2.0)).item() for _ in self.reference.scalars]
        self.tensors = [chance.standard_normal(shape).ravel() for shape in self.reference.shapes(LENGTHS).values()]
        self.modifier = score_tree.Modifier(self.tree, Doubles(), scale=SCALE, scalars=[np.float64(x) for x in self.scalars],
                                            first={dim: np.int64(at) for dim, at in FIRST.items()}, read=self.read)

    def read(self, tensor, place):
        self.reads.append((tensor, tuple(place.items())))
        dims = self.tree["tensors"][tensor]
        at = tuple(int(place[dim][0]) + place[dim][1] for dim in dims)
        return self.tensors[tensor].reshape([LENGTHS[dim] for dim in dims])[at]

    def found(self):
        value, slope = np.empty(self.x.shape), np.empty(self.x.shape)
        for k in KEYS:
            for q in QUERIES:
                made = self.modifier.slope(np.float64(self.x[q, k]), q, k)
                slope[q, k] = 1.0 if made is None else made
                value[q, k] = self.modifier.value(np.float64(self.x[q, k]), q, k)
        return value, slope

    def wanted(self):
        indices = {"b": FIRST["b"], "h": FIRST["h"], "q": FIRST["q"] + np.arange(len(QUERIES))[:, None],
                   "k": FIRST["k"] + np.arange(len(KEYS))[None, :]}
        return self.reference(SCALE * self.x, indices, LENGTHS, self.scalars, self.tensors)


@pytest.mark.parametrize("one", TREES, ids=range(len(TREES)))
def test_a_block_of_scores_has_the_values_and_the_slopes_of_the_text(one):
    block = Block(one, np.random.default_rng())
    with np.errstate(all="ignore"):
        for found, wanted, bounded in zip(block.found(), block.wanted(), ("value", "slope")):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11, err_msg=one["text"])
            assert np.isfinite(found).all() or not block.modifier.bounded(bounded), one["text"]


def computed(text):
    block = Block(next(one for one in TREES if one["text"] == text), np.random.default_rng())
    Doubles.count = 0
    block.found()
    return block, Doubles.count / block.x.size


def test_what_elements_share_is_made_once():
    softcap, operations = computed("cap * tanh(s / cap)")
    assert operations < 4.1  # tanh by way of scaled_tanh, of value and of slope, and one inverse of cap for all
    alibi, operations = computed("s + slope[h] * (k - q)")
    assert operations < 1.1 and len(alibi.reads) == 1  # a sum that has the product in it
    # Places are compared as whole numbers.
    causal, operations = computed("select(k <= q, s, -1e9)")
    assert operations <= 2


def test_fast_functions_are_the_devices_own_or_the_exact_ones():
    class Fast(Doubles):
        def fast_tanh(self, a):
            return np.float64(np.tanh(a) * (1 + 2.0**-11))

    one = next(one for one in TREES if one["text"] == "cap * tanh(s / cap)")
    tree = json.loads(json.dumps(one["tree"]).replace('"tanh"', '"fast_tanh"'))

    def value(operations):
        return score_tree.Modifier(tree, operations, scale=0.5, scalars=[3.0], first={}, read=None).value(4.0, 0, 0)

    assert value(Doubles()) == 3.0 * np.tanh(2.0 / 3.0)
    assert value(Fast()) == pytest.approx(value(Doubles()) * (1 + 2.0**-11), rel=1e-12)


def test_only_what_is_finite_for_finite_scores_is_taken_for_bounded():
    bounded = {one["text"]: Block(one, np.random.default_rng(0)).modifier.bounded("value") for one in TREES[:15]}
    assert bounded["cap * tanh(s / cap)"] and bounded["max(s, -s) / cap"] and bounded["2 * s - 3"]
    assert not any(bounded[text] for text in bounded if "exp(" in text or "log(" in text or "pow(" in text or "/ (1 +" in text)
