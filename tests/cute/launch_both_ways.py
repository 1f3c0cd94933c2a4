"""One problem after another, launched by kbundle's loader (`loader`) or by the host function that CuTe DSL made (`cute`), each in a
process of its own: the one against recording_driver.c, the other against record.c. A request comes from standard input.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def by_loader(request):
    """What the driver is asked for stands in its own file."""
    from conformance import capi, devices
    stream = devices.Cuda().stream  # which makes a context current
    bundle = capi.Bundle(request["bundle"])
    for one in request["problems"]:
        operands = [operand and (operand[0], tuple(operand[1])) for operand in one["operands"]]
        plan = capi.Plan(bundle, capi.Problem(one["op"], operands, one["attributes"]), capi.CUDA, alignment=16)
        plan.launch(one["addresses"], one["results"], one["workspace"], stream)


def by_cute(requests):
    """Of each step what its host function launches, problem by problem: [symbol, grid, block, cluster, overlaps, shared, parameters]."""
    here = ROOT / "builder/provider/cute"
    sys.path.insert(0, str(here))
    import recorder
    recorder.RECORD_C = (here / "record.c").read_text()
    names = {"__name__": "child"}
    exec((here / "child.py").read_text().split("if sys.argv[1] ==")[0], names)
    for number, request in enumerate(requests):
        folder = pathlib.Path(request["folder"]) / str(number)
        folder.mkdir()
        child = names["Child"](names["Source"](str(ROOT / "kernels/attention"), request["source"]), str(folder / "kernel"),
                               request | {"kept": str(folder / "kept")})
        kernel, arguments, options = child.ask()
        made = pathlib.Path(child.compile(kernel, arguments, options))
        maker = recorder.Recorder(str(folder), "c++", str(made / names["HOST"]), (made / names["CUBIN"]).read_bytes(), names["FUNCTION"])
        recorded = child.record(maker, names["at_launch"](kernel, arguments))
        kernels = {symbol: sizes for symbol, sizes in zip(maker.symbols, maker.param_bytes)}
        yield {"kernels": kernels, "launches": [[launch_of(maker, one, i) for i in range(len(one.launches))] for one in recorded]}


def launch_of(maker, recording, number):
    """Bytes that nobody wrote are 0, as a plan has them; of a tensor map the second half, where what was on the stack may be."""
    one, data = recording.launches[number], bytearray(recording.launches[number].params)
    for at in recording.unwritten[number]:
        data[at] = 0
    start = 0
    for size in maker.param_bytes[one.kernel]:
        if size == 128:
            data[start + 64:start + 128] = bytes(64)
        start += size
    return [maker.symbols[one.kernel], list(one.grid), list(one.block), [max(1, size) for size in one.cluster], int(bool(one.programmatic)),
            one.shared, data.hex()]


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    if sys.argv[1] == "loader":
        by_loader(asked)
    else:
        json.dump(list(by_cute(asked)), open(sys.argv[2], "w", encoding="utf-8"))
