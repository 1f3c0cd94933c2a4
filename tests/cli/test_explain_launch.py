"""Promise: explain shows what the chosen variant launches, in numbers, without a device: in JSON and for people."""

import json

from cli.command import HOST_TARGETS

ASKED = ("tiny.scale", "--operand", "x=f32[4,33]", "--attr", "factor=0.5", "--target", HOST_TARGETS.split(",")[0])


def test_json_has_steps_with_range_and_arguments(kbundle, bundle):
    launch = kbundle("explain", bundle, *ASKED, "--json").json["launch"]
    assert launch["alignment"] == 16 and launch["workspace"] == []
    [step] = launch["steps"]
    assert (step["step"], step["kind"], step["kernel"], step["range"], step["grain"]) == (1, "kernel", "scale_f32", 4, 16)
    assert step["args"] == [{"text": "y", "at": {"result": "y", "offset": 0}}, {"text": "x", "at": {"operand": "x", "offset": 0}},
                            {"text": "offset", "at": None}, {"text": "f64(factor)", "ctype": "f64", "value": 0.5},
                            {"text": "i64(K)", "ctype": "i64", "value": 33}]


def test_text_says_the_same(kbundle, bundle):
    out = kbundle("explain", bundle, *ASKED).out
    assert "step 1  kernel scale_f32" in out and "range 4, at least 16 at a time" in out
    assert "y = y, x = x, offset = null, f64(factor) = 0.5, i64(K) = 33" in out


def test_nothing_to_compute_launches_nothing(kbundle, bundle):
    asked = ("tiny.scale", "--operand", "x=f32[0,33]", "--target", HOST_TARGETS.split(",")[0])
    assert kbundle("explain", bundle, *asked, "--json").json["launch"]["steps"] == []
    assert "nothing to launch" in kbundle("explain", bundle, *asked).out


def test_the_size_of_a_gpu_is_for_gpus(kbundle, bundle):
    done = kbundle("explain", bundle, *ASKED, "--sm-count", "78")
    assert done.code == 2 and "--sm-count: x86-64-v2 is no GPU" in done.err


def test_where_nothing_is_legal_there_is_no_launch(kbundle, bundle):
    done = kbundle("explain", bundle, "tiny.scale", "--operand", "x=f32[4,33]", "--target", "sm_90", "--json")
    assert done.code == 1 and json.loads(done.out)["launch"] is None


def test_doctor_and_verify_say_which_gpus_sm_90a_serves(kbundle, bundle):
    assert "ran right on an H100" in kbundle("doctor").out
    assert "ran right on an H100" in kbundle("verify", bundle, "--target", "sm_90a").out
    assert "H100" not in kbundle("verify", bundle, "--target", "x86-64-v3").out
