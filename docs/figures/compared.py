"""kbundle beside its peers: every measured problem of a comparison is a dot, those that kbundle is slower at too; nothing is measured or chosen here.

Dots stand at the peer's time by kbundle's on a scale of ratios, where 2 and 1/2 are equally far from 1.
"""

import math

from svg import Drawing

NOISE = 1.02  # tests/gpu/peers.py: within it two times are the same
# What is compared, by peer: label (with * where kbundle's side is launches in a graph of its own), section, how the table begins, the column of
# kbundle, the peer's (the first of that name behind it).
COMPARED = (
    ("jax.jit of the formula", (
        ("softmax, forward and backward", "speed", "Microseconds", "kbundle in jax.jit", "jax.jit formula"),
        ("RMS and layer norm, forward", "norm", "Microseconds", "forward", "jax.jit"),
        ("RMS and layer norm, with gradients", "norm", "Microseconds", "with gradients", "jax.jit"),
        ("cross entropy, forward", "cross_entropy", "Microseconds", "forward", "jax.jit"),
        ("cross entropy, with gradients", "cross_entropy", "Microseconds", "with gradients", "jax.jit"),
        ("routing to experts, forward", "router", "Microseconds", "forward", "jax.jit"),
        ("routing to experts, with gradients", "router", "Microseconds", "with gradients", "jax.jit"),
        ("quantizing to FP8, 24 ways *", "quantize", "Launches", "us", "jax us"),
        ("products, listed and tuned", "matmul_jax", "Microseconds", "kbundle in jax.jit", "jax.jit"),
        ("products, drawn, nothing lists them *", "unlisted_products", "Microseconds", "nearest record", "jax.jit"),
        ("products and layers, drawn over all sizes", "unlisted_programs", "Microseconds", "kbj", "jax.jit"),
        ("losses of a linear layer, drawn", "unlisted_losses", "Microseconds", "kbj", "jax.jit"),
        ("a GPT's training step, drawn", "unlisted_gpt", "Milliseconds", "kbundle", "jax"))),
    ("jax.nn, which asks cuDNN", (
        ("attention, listed, forward *", "attention_peers", "Microseconds", "forward", "jax"),
        ("attention, listed, with gradients *", "attention_peers", "Microseconds", "both", "jax"),
        ("attention, drawn, forward", "unlisted_attention", "Microseconds", "forward", "jax.nn"),
        ("attention, drawn, with gradients", "unlisted_attention", "Microseconds", "with gradients", "jax.nn"),
        ("attention of one or few queries *", "decode", "Microseconds", "chosen", "jax.nn"))),
    ("PyTorch", (
        ("attention, listed, forward: its SDPA *", "attention_peers", "Microseconds", "forward", "torch"),
        ("attention, listed, with gradients: its SDPA *", "attention_peers", "Microseconds", "both", "torch"),
        ("score modifiers, forward: flex_attention", "attention_modifiers", "Microseconds", "forward", "flex"),
        ("score modifiers, backward: flex_attention *", "attention_modifiers", "Microseconds", "backward", "flex"),
        ("softmax: torch.compile", "speed", "Microseconds", "kbundle, torch's tensors", "torch.compile"))),
)
PLAIN = (("unlisted_ahead", "Microseconds", "forward", "jax.nn"), ("unlisted_ahead", "Microseconds", "with gradients", "jax.nn"),
         ("moe", "ms of forward", "kbj.moe", "plain JAX"))  # the peer has but the formula, spelled out
WIDE = ("e4m3", "e5m2")  # of these products jax.jit takes them wider, so the run itself does not judge them


def measured(sections, section, table, ours, theirs):
    """(problem, the peer's time by ours) of every row that has both."""
    [found] = [one for one in sections[section]["tables"] if one["title"].startswith(table) and ours in one["head"] and theirs in one["head"]]
    head = found["head"]
    at = head.index(ours)
    peer = head.index(theirs, at) if theirs in head[at:] else head.index(theirs)
    ratios = []
    for row in found["rows"]:
        times = [str(row[column]).split(" ")[0] for column in (at, peer)]
        if all(time not in ("", "-") for time in times) and not any(f" {dtype}" in str(row[0]) for dtype in WIDE):
            ratios.append((row[0], float(times[1]) / float(times[0])))
    return ratios


def geometric_mean(ratios):
    return math.exp(sum(math.log(ratio) for _, ratio in ratios) / len(ratios))


def swarm(places):
    """For each place along a line how far off it a dot is drawn, so that dots do not hide each other."""
    drawn = []
    for x in places:
        free = (y for step in range(14) for y in (step * 2.2, -step * 2.2) if all((x - a) ** 2 + (y - b) ** 2 > 17 for a, b in drawn[-40:]))
        drawn.append((x, next(free, 0)))
    return [y for _, y in drawn]


def compared(results):
    left, right, least, most = 345, 765, math.log2(0.25), math.log2(32)

    def place(ratio):
        return left + (right - left) * (math.log2(ratio) - least) / (most - least)

    sections = results["sections"]
    dates = sorted(sections[row[1]]["date"] for _, rows in COMPARED for row in rows)
    drawing = Drawing(960, "Time of peers by kbundle's")
    drawing.text(18, 30, "The peer's time by kbundle's", "big")
    drawing.text(18, 50, f"One dot is one measured problem; right of 1 kbundle is quicker. {results['device']}, {dates[0]} to {dates[-1]}.", "faint")
    drawing.dot(24, 67, 3, "open", "slower")
    drawing.text(33, 71, "slower than the peer by more than 2 %", "bad small")
    y, axis = 118, 92
    for words, x in (("problems", left - 12), ("geometric mean", 880), ("slower", 940)):
        drawing.text(x, axis, words, "faint small", "end")
    plot = len(drawing.parts)
    for peer, rows in COMPARED:
        drawing.text(18, y + 4, f"against {peer}", "bold")
        y += 24
        for label, *where in rows:
            ratios = sorted(measured(sections, *where), key=lambda one: one[1])
            slower = sum(ratio * NOISE < 1 for _, ratio in ratios)
            offs = swarm([place(ratio) for _, ratio in ratios])
            y += max(0, max(offs) - 5)
            drawing.text(30, y + 4, label)
            drawing.text(left - 12, y + 4, str(len(ratios)), "faint", "end")
            drawing.line(left, y, right, y)
            for (problem, ratio), off in zip(ratios, offs):
                drawing.dot(place(ratio), y + off, 2.3, "open" if ratio * NOISE < 1 else "good", f"{problem}: {ratio:.2f}")
            drawing.text(880, y + 4, f"{geometric_mean(ratios):.2f}", "bold", "end")
            drawing.text(940, y + 4, str(slower), "bad bold" if slower else "faint", "end")
            y += 16 + max(5, max(offs))
        y += 8
    lines, drawing.parts[plot:] = drawing.parts[plot:], []
    for ratio in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        drawing.line(place(ratio), axis + 8, place(ratio), y - 14, "one" if ratio == 1 else "rule", None if ratio == 1 else "2 4")
        drawing.text(place(ratio), axis, {0.25: "1/4", 0.5: "1/2", 1: "1: as quick"}.get(ratio, str(ratio)), "faint small", "middle")
    drawing.parts += lines
    plain = [ratio for where in PLAIN for _, ratio in measured(sections, *where)]
    drawing.text(18, y, f"Not drawn: attention with windows that look ahead, and layers of experts, {min(plain):.0f} to {max(plain):.0f} times as "
                 "quick; the peer has but the plain formula there.", "faint small")
    drawing.text(18, y + 17, "* kbundle's launches in a CUDA graph of their own, beside bursts of the peer's program; else both are called alike.",
                 "faint small")
    return drawing.svg(round(y) + 34)
