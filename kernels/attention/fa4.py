"""FlashAttention-4's kernels for Hopper, as kbundle asks for them. The package is flash-attn-4 (BSD-3-Clause); of it only the
kernels' classes are used, which need CuTe DSL and a little of QuACK, but not torch: a stand-in answers its import.
"""
import dataclasses
import importlib.metadata
import importlib.util
import os
import sys
import types

import cutlass
from cutlass import cute

VERSIONS = {"flash-attn-4": "4.0.0b36", "quack-kernels": "0.6.5"}
# The packages' own __init__ would import their interfaces to torch: their folders are enough.
PACKAGES = ("flash_attn", "flash_attn.cute", "quack")


def check_versions():
    """Its kernels' classes are no public interface: another version may well want other arguments."""
    for name, wanted in VERSIONS.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise ImportError("FlashAttention-4's kernels need %s==%s, and this Python has %s: scripts/setup installs it, or "
                              "pip install --no-deps %s==%s" % (name, wanted, found, name, wanted))


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
    sys.modules["torch._subclasses.fake_tensor"].FakeTensor = type("FakeTensor", (), {})
    for name in PACKAGES:
        folder = next(iter(importlib.util.find_spec(name.split(".")[0]).submodule_search_locations)) if "." not in name else None
        module = types.ModuleType(name)
        parent = sys.modules.get(name.rpartition(".")[0])
        module.__path__ = [folder if folder else os.path.join(parent.__path__[0], name.rpartition(".")[2])]
        sys.modules[name] = module


check_versions()
stand_in()
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90  # noqa: E402
from flash_attn.cute.utils import AuxData  # noqa: E402

NO_MASK, CAUSAL, LOCAL = 0, 1, 2


def keys_of(block, head, head_v, mask):
    """(keys, whether probabilities stay in registers) of a block of so many queries on sm_90. As FlashAttention-4 chooses them, but where a
    multiprocessor holds several blocks: each has its share of shared memory and registers."""
    if block == 64 and head <= 192:
        return 64, True
    if head <= 64:
        return 128, True
    if head <= 96:
        return 144 if mask == NO_MASK else 128, False
    if head <= 128:
        return 128, True
    if head <= 192:
        return 96 if mask == LOCAL else 128, True
    return 64 if mask == LOCAL else 80, True


class Forward(FlashAttentionForwardSm90):
    """Each block divides out how many query heads share a key head, and looks whether statistics are wanted, their tensor having
    rows: FlashAttention-4 compiles a kernel for each such number, and for each answer.
    """

    def load(self, q, k, *rest):
        self.qhead_per_kvhead = cute.size(q, mode=[2]) // cute.size(k, mode=[2])  # read by `load` alone, unless heads are packed
        super().load(q, k, *rest)
        self.qhead_per_kvhead = 1

    def epilogue(self, sums, lse, o, stats, shared, lengths, *rest):
        rows = dataclasses.replace(lengths, seqlen_q=cute.size(stats, mode=[0]))  # which bounds what it stores of stats, and that alone
        super().epilogue(sums, lse, o, stats, shared, rows, *rest)


class Several(Forward):
    """Of one warp group that multiplies and one that loads: several blocks on a multiprocessor, so that one's first loads, exponents and last
    stores are hidden behind the others' products, which short sequences have too few of."""
    REGISTERS = {2: (200, 56), 3: (136, 24)}  # of a thread that multiplies, that loads: together twice what each has of 65536

    @property
    def blocks(self):
        return 3 if self.tile_hdimv <= 96 else 2  # of 128 columns, sums alone are 64 registers

    def kernel(self, *args):
        self.num_mma_regs, self.num_producer_regs = self.REGISTERS[self.blocks]
        made = super().kernel(*args)
        launch = made.launch
        # Told no carveout, CuTe DSL asks a driver how much shared memory there is. -1: the driver's own choice, as without a word.
        made.launch = lambda **how: launch(**how | {"min_blocks_per_mp": self.blocks, "preferred_smem_carveout": -1})
        return made


def forward(q, k, v, o, stats, scale, window, *, target, HEAD, HEADV, MASK, BLOCK):
    keys, in_registers = keys_of(BLOCK, HEAD, HEADV, MASK)
    kernel = (Several if BLOCK == 64 and HEAD <= 192 else Forward)(
        q.dtype, HEAD, HEADV, 1, is_causal=MASK == CAUSAL, is_local=MASK == LOCAL, pack_gqa=False, tile_m=BLOCK,
        tile_n=keys, num_stages=2, num_threads=384, Q_in_regs=False, intra_wg_overlap=True, mma_pv_is_rs=in_registers,
        mask_mod=None, score_mod=None, has_aux_tensors=False, q_subtile_factor=None, paged_kv_non_tma=False)
    # As its interface has them: any strides of 16 bytes, and head dims that the tensors tell.
    q, k, v, o = (one.like(align=16, divisible=8, dynamic=[3]) for one in (q, k, v, o))
    left, right = (window, cutlass.Int32(0)) if MASK == LOCAL else (None, None)
    return kernel, (q, k, v, o, stats, scale, None, None, None, None, None, left, right, None, None, AuxData(None, None), None, None)
