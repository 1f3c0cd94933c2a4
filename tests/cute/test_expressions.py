"""From recorded numbers come the expressions that made them, and what follows none is an error that names parameter and bytes.

Needs no CuTe DSL: columns and recordings are made here.
"""

import math
import pathlib
import random
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "builder/provider/cute"))
from infer import DIVISION, Explainer, ceil_log2, next_pow2  # noqa: E402
from template import CannotExplain, Parameter, Problems  # noqa: E402


def columns(count=80, seed=3):
    chance = random.Random(seed)
    sizes = {name: [chance.choice([1, 2, 3, 16, 64, 100, chance.randint(1, 5000)]) for _ in range(count)] for name in "BSH"}
    sizes["BITS"] = [1 << chance.randint(0, 9) for _ in range(count)]
    return sizes


NAMES = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max, "next_pow2": next_pow2, "ceil_log2": ceil_log2}


def computed(text, sizes):
    """The text by Python, whose / is not the language's."""
    condition, mark, values = text.partition(" ? ")
    if mark:
        yes, _, no = values.partition(" : ")
        text = f"({yes}) if ({condition}) else ({no})"
    count = len(next(iter(sizes.values())))
    return [eval(text.replace("/", "//"), {}, {**NAMES, **{name: column[i] for name, column in sizes.items()}})
            for i in range(count)]


@pytest.mark.parametrize("rule", [
    "7", "S", "S - 1", "S * 3 + 2", "B * H", "B * H * ceil_div(S, 128)", "ceil_div(S, 80) * 80", "S * H * 64 / 16", "B * H * S - 1",
    "(B * H) / BITS", "(B * H) % BITS", "max(H % BITS, 1)", "min(S, 132)", "ceil_div(S, BITS)", "B * S * H * 256 >= 131072 ? 9 : 5",
])
def test_what_made_a_column_is_found(rule):
    sizes = columns()
    explainer = Explainer(sizes)
    for known in ("B * H", "H % BITS", "B * S * H * 256"):  # fields that stand before it
        explainer.explain(computed(known, sizes))
    column = computed(rule, sizes)
    if rule == "min(S, 132)":
        explainer = Explainer({**sizes, "sm_count": [random.Random(i).choice([132, 78]) for i in range(80)]})
        column = [min(s, c) for s, c in zip(sizes["S"], explainer.atoms["sm_count"])]
        assert explainer.explain(column) in ("min(S, sm_count)", "min(sm_count, S)")
        return
    text = explainer.explain(column)
    assert text is not None and computed(text, sizes) == column
    other = columns(seed=4)  # the rule and not only its numbers
    assert computed(text, other) == computed(rule, other), text


def test_a_fast_division_divides():
    chance = random.Random(1)
    for _ in range(2000):
        divisor, number = chance.choice([1, 2, 3, 7, chance.randint(1, 1 << 31)]), chance.randint(0, (1 << 31) - 1)
        multiplier, first, second = (value(divisor) for _, value in DIVISION)
        high = number * multiplier >> 32
        assert (high + ((number - high) >> first)) >> second == number // divisor


def test_noise_has_no_expression():
    chance = random.Random(2)
    assert Explainer(columns()).explain([chance.randint(0, 1 << 31) for _ in range(80)]) is None


def test_a_search_that_would_take_hours_is_given_up_and_says_so():
    chance, count = random.Random(5), 12
    sizes = {f"N{i}": [chance.choice([2, 3, 4, 6, 12]) for _ in range(count)] for i in range(64)}
    # All of them divide it, again and again, and nothing is left of it but noise.
    column = [12 ** 12 * chance.choice([7, 11, 13, 17]) for _ in range(count)]
    explainer = Explainer(sizes)
    assert explainer.explain(column) is None and explainer.ended
    assert explainer.explain(sizes["N3"]) == "N3"  # of what comes after it nothing is given up
    recordings = [Recording(struct.pack("<Q", x), struct.pack("<Q", x), set()) for x in column]
    with pytest.raises(CannotExplain, match="and the search was given up after 300000 tries"):
        only_parameter(Problems(recordings, sizes, [132] * count, {}, {}), 8).template()


def only_parameter(problems, size):
    unwritten, addressed = (set().union(*(getattr(one, which)[0] for one in problems.recordings)) for which in ("unwritten", "addressed"))
    return Parameter(problems, 0, "0 of kernel 0", 0, size, unwritten, addressed)


class Launch:
    def __init__(self, params):
        self.params = params


class Recording:
    """What recorder.Recording has of one launch."""

    def __init__(self, here, moved, unwritten):
        self.launches, self.moved, self.unwritten = [Launch(here)], [Launch(moved)], [unwritten]
        self.addressed = [{i for i, (a, b) in enumerate(zip(here, moved)) if a != b}]


def parameter(pack, unwritten=frozenset(), size=32):
    sizes, chance = columns(), random.Random(9)
    places = [[chance.randint(1 << 30, 1 << 40) * 16 for _ in range(80)] for _ in range(2)]
    scales = [chance.uniform(-3, 3) for _ in range(80)]
    recordings = [Recording(*(pack(sizes, place, scales, i) for place in places), set(unwritten)) for i in range(80)]
    problems = Problems(recordings, sizes, [132] * 80, {"x": (*places, 2)}, {"scale": scales})
    return only_parameter(problems, size).template()


def test_bytes_become_addresses_numbers_floats_and_divisions():
    def pack(sizes, place, scales, i):
        heads = sizes["H"][i]
        multiplier, first, second = (value(heads) for _, value in DIVISION)
        scale = struct.unpack("<f", struct.pack("<f", scales[i]))[0] * struct.unpack("<f", struct.pack("<f", math.log2(math.e)))[0]
        junk = b"\xa5" if i % 2 else b"\x5a"
        return (struct.pack("<Qq", place[i] + 2 * sizes["S"][i], sizes["B"][i]) + struct.pack("<IIBB", heads, multiplier, first, second)
                + junk * 2 + struct.pack("<f", scale))
    made = parameter(pack, unwritten={26, 27})
    assert made["fields"][:2] == [{"offset": 0, "tensor": "x", "at": "S"}, {"offset": 8, "type": "u64", "value": "B"}]
    assert [field["offset"] for field in made["fields"]] == [0, 8, 16, 20, 24, 25, 28]
    assert made["fields"][5] == {"offset": 25, "type": "u8", "value": "max(ceil_log2(H) - 1, 0)"}
    assert made["fields"][6]["float"] == "scale" and made["fields"][6]["factor"] == pytest.approx(math.log2(math.e), rel=1e-7)
    assert made["bytes"] == "00" * 32  # and nothing of what was never written


def test_shifts_that_were_alike_in_all_that_was_seen_are_a_division_all_the_same():
    def pack(sizes, place, scales, i):
        divisor = sizes["S"][i] + 1
        return struct.pack("<IIBB", divisor, *(value(divisor) for _, value in DIVISION)) + bytes(6)
    assert {min(ceil_log2(size + 1), 1) for size in columns()["S"]} == {1}
    assert [field["offset"] for field in parameter(pack, size=16)["fields"]] == [0, 4, 8, 9]


@pytest.mark.parametrize("pack, words", [
    (lambda sizes, place, scales, i: struct.pack("<I", sizes["S"][i] * 2654435761 % (1 << 32)), "4 bytes at 0 of parameter 0 of kernel 0 follow"),
    (lambda sizes, place, scales, i: struct.pack("<I", place[i] >> 4 & 0xFFFF), "depends on an address beyond adding an offset to it"),
])
def test_bytes_that_follow_nothing_are_named(pack, words):
    with pytest.raises(CannotExplain, match=words):
        parameter(pack, size=4)


class Whole(Launch):
    """A launch with all that is inferred of it."""
    kernel, block, cluster, shared, programmatic = 0, (128, 1, 1), (0, 0, 0), 0, 0

    def __init__(self, blocks):
        super().__init__(bytes(4))
        self.grid = (blocks, 1, 1)


class Maker:
    param_bytes = [[4]]


def test_a_problem_more_to_look_at_refutes_what_fits_by_chance():
    names = {}
    text = (pathlib.Path(__file__).resolve().parents[2] / "builder/provider/cute/child.py").read_text()
    exec(text.split("if sys.argv[1] ==")[0], names)
    sizes = [(n, 5000 + n * n) for n in range(100, 180)] + [(70000, 5000)]  # all but one are below the limit
    problems = [{"atoms": size, "floats": [], "bases": [], "elsewhere": [], "sm_count": 132} for size in sizes]
    recordings = [Recording(bytes(4), bytes(4), set()) for _ in sizes]
    for recording, (size, most) in zip(recordings, sizes):
        recording.launches = [Whole(min(size, most))]

    def grid(looked_at):
        request = {"problems": problems, "atoms": ["N", "MOST"], "floats": [], "tensors": [], "spans": [], "infer": looked_at}
        return names["Child"](None, "/tmp/kernel", request).infer(Maker, recordings)[0]["grid"][0]

    assert grid(list(range(80))) == "N"
    assert grid([*range(79), 80]) in ("min(N, MOST)", "min(MOST, N)")


def test_of_expressions_that_fit_the_one_of_fewest_factors_is_found():
    """In one layout K1 is the keys and KH few heads, in the other KH is the keys and K1 few heads."""
    chance = random.Random(5)
    keys, heads = ([chance.randint(1, most) for _ in range(120)] for most in (3000, 40))
    atoms = {"K1": keys[:60] + heads[60:], "KH": heads[:60] + keys[60:], "SKV": keys}
    tiles = [-(-k // 48) for k in keys]
    assert Explainer(atoms).explain(tiles) == "ceil_div(SKV, 48)"
    del atoms["SKV"]
    assert Explainer(atoms).explain(tiles) == "ceil_div(K1, 48) * ceil_div(KH, 48)", "which is tried first"


def test_a_tensor_map_s_flag_is_by_the_tensor_that_reaches_its_size():
    """Another tensor, half as large again, may reach some other power of two in the very problems that are looked at."""
    chance = random.Random(6)
    bytes_of_o = [chance.choice([chance.randint(1, 120_000), chance.randint(180_000, 10**7)]) for _ in range(80)]
    flags = [2385202 if size >= 131072 else 288050 for size in bytes_of_o]
    atoms = {"Q": [size * 3 // 2 for size in bytes_of_o], "O": bytes_of_o}
    assert all((q >= 262144) == (flag == 2385202) for q, flag in zip(atoms["Q"], flags)), "the other one fits as well"
    assert Explainer(atoms).explain(flags) == "O >= 131072 ? 2385202 : 288050"


def test_of_two_tensors_that_are_large_in_the_same_problems_each_map_is_by_its_own():
    """In all that is looked at either both reach the size or none does, so that their flags are one column."""
    chance, recordings, places = random.Random(7), [], {"q": [], "o": []}
    bytes_of_o = [chance.choice([chance.randint(1, 80_000), chance.randint(140_000, 10**7)]) for _ in range(80)]
    spans = {"q": [size * 3 // 2 for size in bytes_of_o], "o": bytes_of_o}
    for i in range(80):
        here, there = b"", b""
        for name in spans:
            places[name].append(chance.randint(1 << 30, 1 << 40) * 16)
            rest = struct.pack("<II", 2385202 if spans[name][i] >= 131072 else 288050, 1 + i * 7)
            here += struct.pack("<Q", places[name][i]) + rest
            there += struct.pack("<Q", places[name][i] + (1 << 30)) + rest
        recordings.append(Recording(here, there, set(range(8)) | set(range(16, 24))))
    atoms = {"I": [1 + i * 7 for i in range(80)], **{f"BYTES_{name}": column for name, column in spans.items()}}
    tensors = {name: (at, [one + (1 << 30) for one in at], 2) for name, at in places.items()}
    known = Problems(recordings, atoms, [132] * 80, tensors, {}, [(places[name], f"BYTES_{name}", spans[name]) for name in spans])
    for start, name in ((0, "q"), (16, "o")):
        fields = Parameter(known, 0, name, start, 16, set(), set(range(8)) | set(range(16, 24))).template()["fields"]
        assert [one.get("value") for one in fields] == [None, f"BYTES_{name} >= 131072 ? 2385202 : 288050", "I"]
        assert fields[0]["tensor"] == name
