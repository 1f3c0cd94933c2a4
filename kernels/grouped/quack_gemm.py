"""QuACK's matrix products for Hopper, as kbundle asks for them: of groups of rows (varlen_m), and along groups of rows (varlen_k).
The package is quack-kernels (Apache-2.0); of it only the kernel's classes are used, which need CuTe DSL but not torch: a stand-in
answers its import.
"""
import importlib.metadata
import importlib.util
import sys
import types
from typing import NamedTuple, Optional, Tuple

import cutlass
from cutlass import cute

VERSION = "0.6.5"


def check_version():
    """Its kernels' classes are no public interface: another version may well want other arguments."""
    try:
        found = importlib.metadata.version("quack-kernels")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != VERSION:
        raise ImportError("QuACK's kernels need quack-kernels==%s, and this Python has %s: scripts/setup installs it, or "
                          "pip install --no-deps quack-kernels==%s" % (VERSION, found, VERSION))


class StandIn(types.ModuleType):
    """A module of which every attribute is there and nothing can be called."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = StandIn("%s.%s" % (self.__name__, name))
        setattr(self, name, found)
        return found

    def __or__(self, other):
        return object

    __ror__ = __or__


def stand_in():
    for name in ("torch", "torch._subclasses", "torch._subclasses.fake_tensor"):
        module = StandIn(name)
        module.__path__ = []
        sys.modules[name] = module
    sys.modules["triton"] = None  # where it happens to be installed, they would take a tool of it
    sys.modules["torch"].Tensor = type("Tensor", (), {})
    # The package's own __init__ would import its interface to torch: its folder is enough.
    quack = types.ModuleType("quack")
    quack.__path__ = list(importlib.util.find_spec("quack").submodule_search_locations)
    sys.modules["quack"] = quack


check_version()
stand_in()
import quack.dsl  # noqa: E402, F401  which lets tensors be indexed with `...`
from quack import copy_utils  # noqa: E402
from quack.cute_dsl_utils import mlir_namedtuple  # noqa: E402
from quack.epilogue.mixin import ComposableEpiMixin  # noqa: E402
from quack.epilogue.ops import RowVecLoad  # noqa: E402
from quack.gemm_sm90 import GemmSm90  # noqa: E402
from quack.rounding import RoundingMode  # noqa: E402
from quack.tile_scheduler import RasterOrderOption, TileSchedulerOptions  # noqa: E402
from quack.varlen_utils import VarlenArguments  # noqa: E402

TOGETHER = 8  # tiles next to each other that are computed at about the same time, as QuACK has it
THREADS = 256


@mlir_namedtuple
class Added(NamedTuple):
    bias: Optional[cute.Tensor] = None


class Product(ComposableEpiMixin, GemmSm90):
    """Sums in float32, to which a row of bias is added; then rounded."""
    EpilogueArguments = Added
    _epi_ops = (RowVecLoad("bias"),)
    _extra_param_fields = (("split_k_semaphore", Optional[cute.Tensor], None), ("split_k_workspace", Optional[cute.Tensor], None))

    def epi_to_underlying_arguments(self, args, *, loc=None, ip=None):
        self.rounding_mode = RoundingMode.RN
        return self.EpilogueParams(**self._epi_ops_to_params_dict(args))

    @cute.jit
    def epi_visit_subtile(self, params, tensors, sums: cute.Tensor, unused: Optional[cute.Tensor] = None) -> Tuple[cute.Tensor, ...]:
        row = tensors.get("bias")
        if cutlass.const_expr(row is not None):
            for i in cutlass.range(cute.size(row), unroll_full=True):
                sums[i] += row[i]
        return ()

    def make_tma_epilogue_atoms_and_tensors(self, d, c, epilogue_args, varlen_m):
        """As QuACK's, but a group's rows are cut off by two more axes and not by one and an address before the tensor's first: what a
        launch is given lies in its tensors."""
        if varlen_m:
            d = copy_utils.create_ragged_tensor_for_tma(d, ragged_dim=0, ptr_shift=False)
        atom, tensor = self._make_tma_epi_atoms_and_tensors(d, self.epi_smem_layout_staged, self.epi_tile, op_type="store")
        return atom, tensor, None, None


@cute.kernel
def find_places(sizes: cute.Tensor, offsets: cute.Tensor, y: Optional[cute.Tensor], rows: cutlass.Int32):
    """offsets[G + 1] of sizes[G], whatever these are: a negative one is 0, and rows end with the last there is. Rows of y that belong
    to no group become 0. Every warp adds up all sizes by itself; the first of all writes them down."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    lane = thread % 32
    writes = block == 0 and thread < 32
    total = cutlass.Int32(0)
    for start in cutlass.range(0, cute.size(sizes), 32, unroll=1):
        group = start + lane
        size = cutlass.Int32(0)
        if group < cute.size(sizes):
            size = cutlass.min(cutlass.max(sizes[group], 0), rows)
        for i in cutlass.range_constexpr(5):
            before = cute.arch.shuffle_sync_up(size, offset=1 << i, mask_and_clamp=0)
            if lane >= 1 << i:
                size = cutlass.min(size + before, rows)
        if writes and group < cute.size(sizes):
            offsets[group + 1] = cutlass.min(total + size, rows)
        total = cutlass.min(total + cute.arch.shuffle_sync(size, 31), rows)
    if writes and lane == 0:
        offsets[0] = cutlass.Int32(0)
    if cutlass.const_expr(y is not None):
        wide = cutlass.const_expr(128 // y.element_type.width)  # elements of 16 bytes, which rows are multiples of
        zeros = cute.make_rmem_tensor((1, wide), y.element_type)
        zeros.fill(0)
        vectors = cute.size(y, mode=[1]) // wide
        for row in cutlass.range(total + block, rows, blocks, unroll=1):
            for vector in cutlass.range(thread, vectors, THREADS, unroll=1):
                cute.autovec_copy(zeros, cute.local_tile(y, (1, wide), (row, vector)))


class Launch:
    """A step that finds where groups lie, and one product, by blocks that stay, one on each multiprocessor. Of clusters there are as
    many as multiprocessors, so that some come when others end."""

    def __init__(self, dtype, tile, cluster, pingpong):
        # Not use_pdl: offsets are read before a wait for the kernel in front.
        self.product = Product(cutlass.Float32, dtype, tile, (*cluster, 1), pingpong=pingpong, use_pdl=False)

    def options(self, multiprocessors):
        return TileSchedulerOptions(multiprocessors, RasterOrderOption.AlongN, cutlass.Int32(TOGETHER))


class OfGroups(Launch):
    """y[M, N] = x[M, K] w[g] for each group g of rows, w[g] being K x N, or N x K if transposed."""

    def __init__(self, *how, transposed):
        super().__init__(*how)
        self.product.b_transposed = not transposed

    @cute.jit
    def __call__(self, x: cute.Tensor, w: cute.Tensor, y: cute.Tensor, bias: Optional[cute.Tensor], sizes: cute.Tensor, offsets: cute.Tensor,
                 multiprocessors: cutlass.Int32, stream):
        find_places(sizes, offsets, y, cute.size(x, mode=[0])).launch(
            grid=[multiprocessors, 1, 1], block=[THREADS, 1, 1], stream=stream)
        self.product(x, w, y, None, Added(bias), self.options(multiprocessors), VarlenArguments(mCuSeqlensM=offsets), stream)


class AlongGroups(Launch):
    """dw[g][K, N] = x^T[K, M] dy^T[N, M] over the rows of each group g."""

    @cute.jit
    def __call__(self, x: cute.Tensor, dy: cute.Tensor, dw: cute.Tensor, sizes: cute.Tensor, offsets: cute.Tensor,
                 multiprocessors: cutlass.Int32, stream):
        find_places(sizes, offsets, None, cute.size(x, mode=[1])).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)
        self.product(x, dy, dw, None, Added(), self.options(multiprocessors), VarlenArguments(mCuSeqlensK=offsets), stream)


def vectors(*tensors):
    return [None if one is None else one.like(align=16, divisible=128 // one.dtype.width) for one in tensors]


def of_groups(x, w, y, bias, sizes, offsets, multiprocessors, *, target, TRANS, BIAS, ROWS, COLUMNS, ALONG, ACROSS, PINGPONG):
    launch = OfGroups(x.dtype, (ROWS, COLUMNS), (ALONG, ACROSS), PINGPONG == 1, transposed=TRANS == 1)
    return launch, (*vectors(x, w, y, bias), sizes, offsets, multiprocessors)


def along_groups(x, dy, dw, sizes, offsets, multiprocessors, *, target, ROWS, COLUMNS, ALONG, ACROSS, PINGPONG):
    launch = AlongGroups(x.dtype, (ROWS, COLUMNS), (ALONG, ACROSS), PINGPONG == 1)
    return launch, (*vectors(x, dy, dw), sizes, offsets, multiprocessors)
