"""Whether all processes of a job run the same code for the same problems.

Choices depend on the bundle, on what a process wishes (force, deny) and on its device. Where one of these differs, ranks
round differently, and what should be replicated drifts apart: nothing else would ever say so.
"""

import hashlib
import json

import jax
import numpy as np

from kbundle._errors import Error
from kbundle._policy import stats


def check_ranks():
    """A digest of all choices that this process made so far: for each op and problem the variant and the bundle's content. With
    several processes it is compared: an error, on every rank, names what differs and between which. All ranks must call it at
    the same point, as they do any collective; where plans are made while a program runs, that is after a first step."""
    choices = _choices()
    digest = hashlib.sha256(json.dumps(choices).encode()).digest()
    if jax.process_count() == 1:
        return digest.hex()
    found = _gather(np.frombuffer(digest, np.uint8))
    if any(other.tobytes() != digest for other in found):
        everyone = [json.loads(text) for text in _gather_texts(json.dumps(choices))]
        raise Error("FAILED_PRECONDITION", "comparing the choices of %d ranks: %s. Give all ranks one bundle, one policy (force, deny, "
                    "strict) and GPUs of one kind" % (len(everyone), difference(everyone)))
    return digest.hex()


def difference(everyone):
    """What differs first, and between which ranks. everyone: of each rank [[op, problem, variant, content]]."""
    ranks = [{(op, problem): (variant, content) for op, problem, variant, content in choices} for choices in everyone]
    for problem in sorted(set().union(*ranks)):
        answers = [rank.get(problem) for rank in ranks]
        other = next((at for at, answer in enumerate(answers) if answer != answers[0]), None)
        if other is not None:
            return "%s: rank 0 %s, rank %d %s" % (problem[1], _say(answers[0], answers[other]), other, _say(answers[other], answers[0]))
    return "nothing differs"


def _say(answer, against):
    if answer is None:
        return "did not run it"
    variant, content = answer
    same = against is not None and against[0] == variant
    return "took %s of a bundle with content %s" % (variant, content[:16]) if same else "took %s" % variant


def _choices():
    rows = stats()["chosen"]
    return sorted({(row["op"], row["problem"], row["variant"], row["content_id"]) for row in rows})


def _gather(array):
    from jax.experimental import multihost_utils
    return np.asarray(multihost_utils.process_allgather(array))


def _gather_texts(text):
    encoded = np.frombuffer(text.encode(), np.uint8)
    sizes = [int(size) for size in _gather(np.array([encoded.size], np.int32)).reshape(-1)]
    padded = np.zeros(max(sizes), np.uint8)
    padded[:encoded.size] = encoded
    return [row[:size].tobytes().decode() for row, size in zip(_gather(padded), sizes)]
