"""Promise: the ranks of a job find out when they do not run the same code, and the error names the problem, the ranks and what
each took."""

import pathlib
import socket
import subprocess
import sys

import pytest

from kbundle.jax import _ranks

PROGRAM = pathlib.Path(__file__).with_name("rank_program.py")


def run_ranks(kernels_path, odd_one):
    """(exit code, output) of two processes of a job; odd_one denies the variant that the other takes."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, PROGRAM, str(kernels_path), str(port), str(rank), str(int(odd_one))], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs)]


def test_ranks_that_agree_have_one_digest(kernels_path):
    outputs = run_ranks(kernels_path, odd_one=False)
    assert [code for code, _ in outputs] == [0, 0], outputs
    digests = {output.split("digest ")[1].split()[0] for _, output in outputs}
    assert len(digests) == 1 and len(digests.pop()) == 64


def test_a_rank_that_took_another_variant_is_named_on_all(kernels_path):
    for code, output in run_ranks(kernels_path, odd_one=True):
        assert code == 3, output
        for text in ("FAILED_PRECONDITION", "matmul.matmul(a=f32[4,32]", "rank 0 took", "rank 1 took", "deny"):
            assert text in output


def test_a_problem_that_only_one_rank_ran_and_another_bundle_are_differences():
    one = ["op", "op(x=f32[2])", "op@v", "a" * 64]
    assert _ranks.difference([[one], []]) == "op(x=f32[2]): rank 0 took op@v, rank 1 did not run it"
    found = _ranks.difference([[one], [one], [one[:3] + ["b" * 64]]])
    assert "rank 2 took op@v of a bundle with content bbbbbbbbbbbbbbbb" in found


@pytest.mark.usefixtures("kernels")
def test_one_process_has_a_digest_that_follows_its_choices():
    import numpy as np

    import kbundle.jax as kbj
    before = kbj.check_ranks()
    kbj.scaled_softmax(np.ones((3, 7919), np.float32))
    assert kbj.check_ranks() != before
    assert kbj.check_ranks() == kbj.check_ranks()
