"""FORMAT.md, section 13.5: a matrix product in numbers."""

from format.reader import program

RELU, BIAS, RELU_GRADIENT, BIAS_GRADIENT, GELU, GELU_GRADIENT, AUX, GRADIENT_OF_B, GRADIENT_OF_A = (
    1 << i for i in range(1, 10))  # cublasLtEpilogue_t, whose A is our B


class Product:
    def __init__(self, launch, stored):
        self.launch, self.stored, numbers = launch, stored, launch.reader.numbers
        tensors, amounts = numbers.names("ProductTensor"), numbers.names("ProductNumber")
        args, programs = list(stored.args), list(stored.programs)
        self.tensors, self.numbers = dict(zip(tensors, args)), dict(zip(amounts, programs))
        self.alpha, self.beta = args[len(tensors):]
        self.holds = {name: program.present(span) and launch.value(span) != 0
                      for name, span in zip(numbers.names("ProductCondition"), programs[len(amounts):])}

    def number(self, name, default):
        return self.launch.size(self.numbers[name], default)

    def at(self, name):
        return self.launch.pointer(self.tensors[name]) if self.tensors[name].kind else None

    def matrix(self, tensor, name, rows, columns):
        leading = self.number(f"kLeading{name}", columns)
        return self.shown(tensor, leading, self.number(f"kStride{name}", rows * leading))

    def shown(self, tensor, leading, stride):
        if self.at(tensor) is None:
            return None
        dtype = self.launch.reader.numbers.name("DType", self.launch.dtype(self.tensors[tensor]))
        return {"at": self.at(tensor), "dtype": dtype, "leading": leading, "batch_stride": stride}

    def epilogue(self, aux, bias, gradient):
        is_ = self.holds
        bits = RELU * is_["kRelu"] | GELU * is_["kGelu"] | RELU_GRADIENT * is_["kReluGradient"]
        bits |= GELU_GRADIENT * is_["kGeluGradient"] | AUX * (aux is not None) | BIAS * (bias is not None)
        if gradient is not None:
            bits |= GRADIENT_OF_A if is_["kBiasGradientOfA"] else GRADIENT_OF_B if is_["kBiasGradientOfB"] else BIAS_GRADIENT
        return bits or 1

    def scalar(self, arg, default):
        if arg.kind == 0:
            return default
        return float(self.launch.problem.attributes[arg.index] if arg.kind == 5 else self.launch.value(arg.program))


def resolve(launch, stored):
    p = Product(launch, stored)
    m, n, k = (p.number(name, 0) for name in ("kM", "kN", "kK"))
    across_a, across_b = p.holds["kTransposeA"], p.holds["kTransposeB"]
    out = {"mnk": [m, n, k], "batch": p.number("kBatch", 1), "transpose_a": across_a, "transpose_b": across_b}
    out["a"] = p.matrix("kA", "A", *((k, m) if across_a else (m, k)))
    out["b"] = p.matrix("kB", "B", *((n, k) if across_b else (k, n)))
    out["c"], out["d"] = p.matrix("kC", "C", m, n), p.matrix("kD", "D", m, n)
    aux = next((name for name in ("kAux", "kAux2", "kAux3", "kAux4") if p.at(name) is not None), None)
    mask = p.holds["kRelu"] or p.holds["kReluGradient"]
    out["aux"] = p.matrix(aux, "Aux", m, -(-n // 128) * 128 if mask else n) if aux else None
    bias = "kBias" if p.at("kBiasGradient") is None else "kBiasGradient"
    out["bias"] = p.shown(bias, 0, p.number("kStrideBias", 0))
    out["epilogue"] = p.epilogue(aux, p.at("kBias"), p.at("kBiasGradient"))
    workspace = p.tensors["kWorkspace"]
    out |= {"tf32": p.holds["kTf32"], "alpha": p.scalar(p.alpha, 1.0), "beta": p.scalar(p.beta, 0.0),
            "workspace": p.at("kWorkspace"), "bytes": launch.sizes[workspace.index] if workspace.kind else 0}
    return {key: value for key, value in out.items() if value is not None or key == "workspace"}
