"""`kbundle build --problems`: a file's problems become listed ones, once each, whatever their order in the file."""

from cli.tiny import write_cuda

NEW = '{"op": "tiny.scale", "operands": {"x": "f32[3,10]"}, "attributes": {"factor": 3.0}}\n'
KNOWN = '{"op": "tiny.negate", "operands": {"x": "i32[100]"}}\n'
OTHER = '{"op": "tiny.negate", "operands": {"x": "i32[7]"}}\n'


def test_problems_of_a_file_are_listed_once_and_verified(kbundle, tiny, tmp_path):
    problems, out = tmp_path / "problems.jsonl", tmp_path / "out.kb"
    problems.write_text(NEW + KNOWN + OTHER + NEW)
    assert kbundle.build(tiny, out, "--problems", problems).code == 0
    verified = kbundle("verify", out, "--target", "x86-64-v3", "--json")
    assert verified.code == 0, verified.err
    assert verified.json["problems_checked"] == 5  # three of the manifest, two new ones
    first = out.read_bytes()
    problems.write_text(OTHER + NEW)
    assert kbundle.build(tiny, out, "--problems", problems).code == 0 and out.read_bytes() == first
    assert kbundle.build(tiny, out).code == 0 and out.read_bytes() != first


def test_a_problem_that_its_op_refuses_is_an_error_with_file_and_line(kbundle, tiny, tmp_path):
    problems, out = tmp_path / "problems.jsonl", tmp_path / "out.kb"
    problems.write_text(NEW + '{"op": "tiny.scale", "operands": {"z": "f32[4]"}}\n')
    done = kbundle.build(tiny, out, "--problems", problems)
    assert done.code == 1 and f"{problems}:2" in done.err and not out.exists()


def test_an_op_with_a_portable_variant_takes_a_files_problems(kbundle, tmp_path):
    """The outline, of which the problems are asked, once said that a portable variant's code is a cubin."""
    problems, out = tmp_path / "problems.jsonl", tmp_path / "out.kb"
    problems.write_text('{"op": "gpu.twice", "operands": {"x": "f64[77]"}}\n')
    done = kbundle("build", write_cuda(tmp_path / "gpu"), "-o", out, "--target", "portable,sm_90a", "--problems", problems)
    assert done.code == 0, done.err
    assert kbundle("verify", out, "--target", "sm_90a", "--json").json["problems_checked"] == 2


def test_problems_of_other_families_are_passed_over_and_counted(kbundle, tiny, tmp_path):
    problems, out = tmp_path / "model.jsonl", tmp_path / "out.kb"
    problems.write_text('{"op": "other.op", "operands": {"x": "f32[4]"}}\n' + NEW)
    done = kbundle.build(tiny, out, "--problems", problems)
    assert done.code == 0 and f"1 problem of other families in {problems} is passed over" in done.out, done.err
    problems.write_text('{"op": "tiny.scala", "operands": {"x": "f32[4]"}}\n')
    assert kbundle.build(tiny, out, "--problems", problems).code == 1
