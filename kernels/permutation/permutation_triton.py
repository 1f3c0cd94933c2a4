"""Triton kernels of the permutation ops. The manifest, permutation.toml, says which instances exist and where each is
legal.

Nothing read from a map, from sizes or from indices is an address or a trip count before it is checked. A token's entries
are taken four at a time: the loads that lead to a row depend on one another, and those of four entries overlap.
"""

import triton
import triton.language as tl


@triton.jit
def _count(entries, experts):
    """How many entries a token has: 0 .. experts."""
    return tl.minimum(tl.maximum(tl.load(entries + 2 * experts), 0), experts)


@triton.jit
def _entry(entries, s, n, experts, rows):
    """(row, expert) of entry s; row is -1 unless the entry counts."""
    row = tl.load(entries + s, mask=s < n, other=-1)
    expert = tl.load(entries + experts + s, mask=s < n, other=-1)
    counts = (row >= 0) & (row < rows) & (expert >= 0) & (expert < experts)
    return tl.where(counts, row, -1), expert


@triton.jit
def _owned(owner, row, key):
    """The row, or -1 where another entry owns it."""
    found = tl.load(owner + row, mask=row >= 0, other=-1)
    return tl.where(found == key, row, -1)


@triton.jit
def claim_rows(owner, row_id_map, tokens, experts, rows, BLOCK: tl.constexpr):
    """owner[row] = the highest token * experts + s that names the row; -1 before."""
    key = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    token = key // experts
    s = (key - token * experts).to(tl.int32)
    there = token < tokens
    entries = row_id_map + token * (2 * experts + 1)
    n = tl.load(entries + 2 * experts, mask=there, other=0)
    row, expert = _entry(entries, s, n, experts, rows)
    tl.atomic_max(owner + row, key.to(tl.int32), mask=row >= 0, sem="relaxed")


@triton.jit
def _clear_unowned(out, permuted_probs, owner, first, H, rows, HAS_PROBS: tl.constexpr, BLOCK: tl.constexpr):
    """Zeros for those of 32 rows that nobody owns: in one block of columns, and their probabilities."""
    row = first + tl.arange(0, 32)
    unowned = tl.load(owner + row, mask=row < rows, other=0) < 0
    if tl.max(unowned.to(tl.int32), 0) > 0:
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        for i in range(32):
            if tl.load(owner + first + i, mask=first + i < rows, other=0) < 0:
                to = out + (first + i).to(tl.int64) * H + column
                tl.store(to, tl.zeros([BLOCK], out.dtype.element_ty), mask=column < H)
        if HAS_PROBS:
            zero = tl.zeros([32], permuted_probs.dtype.element_ty)
            tl.store(permuted_probs + row, zero, mask=unowned & (tl.program_id(1) == 0))


@triton.jit
def _permute_one(out, permuted_probs, probs, row, expert, token, values, column, H, experts, HAS_PROBS: tl.constexpr):
    to = out + row.to(tl.int64) * H + column
    if HAS_PROBS:
        prob = tl.load(probs + token * experts + expert, mask=row >= 0, other=0)
        tl.store(permuted_probs + row, prob, mask=(row >= 0) & (tl.program_id(1) == 0))
        values = tl.where(prob.to(tl.float32) == 0.0, tl.zeros_like(values), values)
    tl.store(to, values, mask=(column < H) & (row >= 0))


@triton.jit
def permute_rows(out, permuted_probs, x, row_id_map, probs, owner, tokens, H, experts, rows, HAS_PROBS: tl.constexpr,
                 BLOCK: tl.constexpr):
    """A program takes a block of columns of a token, or of 32 rows that may have no token."""
    pid = tl.program_id(0)
    if pid >= tokens:
        _clear_unowned(out, permuted_probs, owner, (pid - tokens) * 32, H, rows, HAS_PROBS, BLOCK)
    else:
        token = pid.to(tl.int64)
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(x + token * H + column, mask=column < H, other=0)
        entries = row_id_map + token * (2 * experts + 1)
        n = _count(entries, experts)
        key = pid * experts
        for s in range(0, n, 4):
            row0, expert0 = _entry(entries, s, n, experts, rows)
            row1, expert1 = _entry(entries, s + 1, n, experts, rows)
            row2, expert2 = _entry(entries, s + 2, n, experts, rows)
            row3, expert3 = _entry(entries, s + 3, n, experts, rows)
            row0 = _owned(owner, row0, key + s)
            row1 = _owned(owner, row1, key + s + 1)
            row2 = _owned(owner, row2, key + s + 2)
            row3 = _owned(owner, row3, key + s + 3)
            _permute_one(out, permuted_probs, probs, row0, expert0, token, values, column, H, experts, HAS_PROBS)
            _permute_one(out, permuted_probs, probs, row1, expert1, token, values, column, H, experts, HAS_PROBS)
            _permute_one(out, permuted_probs, probs, row2, expert2, token, values, column, H, experts, HAS_PROBS)
            _permute_one(out, permuted_probs, probs, row3, expert3, token, values, column, H, experts, HAS_PROBS)


@triton.jit
def _row_of(x, row, column, H):
    return tl.load(x + row.to(tl.int64) * H + column, mask=(column < H) & (row >= 0), other=0).to(tl.float32)


@triton.jit
def _weight(merging_probs, row, expert, token, experts, WEIGHTED: tl.constexpr):
    if WEIGHTED:
        return tl.load(merging_probs + token * experts + expert, mask=row >= 0, other=0).to(tl.float32)
    else:
        return tl.where(row >= 0, 1.0, 0.0)


@triton.jit
def unpermute_rows(out, x, row_id_map, merging_probs, H, experts, rows, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    entries = row_id_map + token * (2 * experts + 1)
    n = _count(entries, experts)
    total = tl.zeros([BLOCK], tl.float32)
    for s in range(0, n, 4):
        row0, expert0 = _entry(entries, s, n, experts, rows)
        row1, expert1 = _entry(entries, s + 1, n, experts, rows)
        row2, expert2 = _entry(entries, s + 2, n, experts, rows)
        row3, expert3 = _entry(entries, s + 3, n, experts, rows)
        values0 = _row_of(x, row0, column, H)
        values1 = _row_of(x, row1, column, H)
        values2 = _row_of(x, row2, column, H)
        values3 = _row_of(x, row3, column, H)
        total += values0 * _weight(merging_probs, row0, expert0, token, experts, WEIGHTED)
        total += values1 * _weight(merging_probs, row1, expert1, token, experts, WEIGHTED)
        total += values2 * _weight(merging_probs, row2, expert2, token, experts, WEIGHTED)
        total += values3 * _weight(merging_probs, row3, expert3, token, experts, WEIGHTED)
    tl.store(out + token * H + column, total.to(out.dtype.element_ty), mask=column < H)


@triton.jit
def unpermute_probs(unpermuted_probs, permuted_probs, row_id_map, tokens, experts, rows, BLOCK: tl.constexpr):
    """A token a lane, its entries in order, so that the last one of an expert stays. unpermuted_probs is 0 before."""
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    entries = row_id_map + token * (2 * experts + 1)
    n = tl.load(entries + 2 * experts, mask=token < tokens, other=0)
    n = tl.minimum(tl.maximum(n, 0), experts)
    for s in range(tl.max(n, 0)):
        row, expert = _entry(entries, s, n, experts, rows)
        prob = tl.load(permuted_probs + row, mask=row >= 0, other=0)
        tl.store(unpermuted_probs + token * experts + expert, prob, mask=row >= 0)


@triton.jit
def unpermute_backward(dx, dprobs, dy, row_id_map, x, merging_probs, owner, tokens, H, experts, rows, BLOCK: tl.constexpr):
    """A program takes a token, whose row fits into a block, or 32 rows that may have no token. dprobs is 0 before."""
    pid = tl.program_id(0)
    if pid >= tokens:
        _clear_unowned(dx, dx, owner, (pid - tokens) * 32, H, rows, False, BLOCK)
    else:
        token = pid.to(tl.int64)
        column = tl.arange(0, BLOCK)
        gradient = tl.load(dy + token * H + column, mask=column < H, other=0).to(tl.float32)
        entries = row_id_map + token * (2 * experts + 1)
        n = _count(entries, experts)
        for s in range(0, n, 2):
            row0, expert0 = _entry(entries, s, n, experts, rows)
            row1, expert1 = _entry(entries, s + 1, n, experts, rows)
            dot0 = tl.sum(_row_of(x, row0, column, H) * gradient, 0)
            dot1 = tl.sum(_row_of(x, row1, column, H) * gradient, 0)
            by0 = _weight(merging_probs, row0, expert0, token, experts, True)
            by1 = _weight(merging_probs, row1, expert1, token, experts, True)
            own0 = _owned(owner, row0, pid * experts + s)
            own1 = _owned(owner, row1, pid * experts + s + 1)
            to0 = dx + own0.to(tl.int64) * H + column
            to1 = dx + own1.to(tl.int64) * H + column
            tl.store(to0, (gradient * by0).to(dx.dtype.element_ty), mask=(column < H) & (own0 >= 0))
            tl.store(to1, (gradient * by1).to(dx.dtype.element_ty), mask=(column < H) & (own1 >= 0))
            tl.store(dprobs + token * experts + expert0, dot0.to(dprobs.dtype.element_ty), mask=row0 >= 0)
            tl.store(dprobs + token * experts + expert1, dot1.to(dprobs.dtype.element_ty), mask=row1 >= 0)


# Rows are numbered expert by expert, and within an expert token by token, so a token's row is the number of routed
# tokens of the experts before it and of the tokens before it: counted per expert and part of the tokens, then summed up.

@triton.jit
def _routed(routing_map, tokens, experts, TOKENS: tl.constexpr, EXPERTS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, EXPERTS)
    inside = (token < tokens)[:, None] & (expert < experts)[None, :]
    found = tl.load(routing_map + token[:, None] * experts + expert[None, :], mask=inside, other=0) != 0
    return token, expert, (inside & found).to(tl.int32)


@triton.jit
def count_routed(counts, routing_map, tokens, experts, parts, TOKENS: tl.constexpr, EXPERTS: tl.constexpr):
    _, expert, routed = _routed(routing_map, tokens, experts, TOKENS, EXPERTS)
    tl.store(counts + expert.to(tl.int64) * parts + tl.program_id(0), tl.sum(routed, 0), mask=expert < experts)


@triton.jit
def sum_counts(counts, totals, parts, BLOCK: tl.constexpr):
    """A program for each expert: its counts become sums of the parts before, totals[expert] that of all."""
    mine = counts + tl.program_id(0).to(tl.int64) * parts
    before = 0
    for first in range(0, parts, BLOCK):
        part = first + tl.arange(0, BLOCK)
        count = tl.load(mine + part, mask=part < parts, other=0)
        tl.store(mine + part, before + tl.cumsum(count, 0) - count, mask=part < parts)
        before += tl.sum(count, 0)
    tl.store(totals + tl.program_id(0), before)


@triton.jit
def write_row_ids(row_id_map, counts, totals, routing_map, tokens, experts, parts, TOKENS: tl.constexpr,
                  EXPERTS: tl.constexpr):
    """Entries in falling order of expert. row_id_map is -1 before."""
    token, expert, routed = _routed(routing_map, tokens, experts, TOKENS, EXPERTS)
    total = tl.load(totals + expert, mask=expert < experts, other=0)
    start = tl.cumsum(total, 0) - total
    start += tl.load(counts + expert.to(tl.int64) * parts + tl.program_id(0), mask=expert < experts, other=0)
    row = start[None, :] + tl.cumsum(routed, 0) - routed
    s = tl.cumsum(routed, 1, reverse=True) - routed
    entries = row_id_map + token * (2 * experts + 1)
    tl.store(entries[:, None] + s, row, mask=routed != 0)
    tl.store(entries[:, None] + experts + s, tl.broadcast_to(expert[None, :], [TOKENS, EXPERTS]), mask=routed != 0)
    tl.store(entries + 2 * experts, tl.sum(routed, 1), mask=token < tokens)


@triton.jit
def write_chunks(row_id_map, split_sizes, sorted_indices, chunks, tokens, BLOCK: tl.constexpr):
    """A column of programs for each chunk: the sum of the sizes before it, its place in the order, and the sum of the
    sizes before that place. row_id_map is -1 before."""
    chunk = tl.program_id(0)
    before = tl.zeros([BLOCK], tl.int64)
    places = tl.full([BLOCK], chunks, tl.int32)
    for first in range(0, chunks, BLOCK):
        i = first + tl.arange(0, BLOCK)
        before += tl.maximum(tl.load(split_sizes + i, mask=i < chunk, other=0), 0).to(tl.int64)
        named = tl.load(sorted_indices + i, mask=i < chunks, other=-1)
        places = tl.minimum(places, tl.where(named == chunk, i, chunks))
    start, place = tl.sum(before, 0), tl.min(places, 0)
    if place < chunks:
        before = tl.zeros([BLOCK], tl.int64)
        for first in range(0, place, BLOCK):
            i = first + tl.arange(0, BLOCK)
            named = tl.load(sorted_indices + i, mask=i < place, other=-1)
            size = tl.load(split_sizes + named, mask=(named >= 0) & (named < chunks), other=0)
            before += tl.maximum(size, 0).to(tl.int64)
        to = tl.sum(before, 0)
        count = tl.load(split_sizes + chunk).to(tl.int64)
        count = tl.minimum(count, tl.minimum(tokens - start, tokens - to))
        step = tl.num_programs(1) * BLOCK
        for done in range(tl.program_id(1).to(tl.int64) * BLOCK, count, step):
            j = done + tl.arange(0, BLOCK)
            tl.store(row_id_map + start + j, (to + j).to(tl.int32), mask=j < count)


@triton.jit
def claim_chunk_rows(owner, row_id_map, tokens, BLOCK: tl.constexpr):
    """owner[row] = the highest token that goes to the row; -1 before."""
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(row_id_map + token, mask=token < tokens, other=-1)
    tl.atomic_max(owner + row, token, mask=(row >= 0) & (row < tokens), sem="relaxed")


@triton.jit
def gather_rows(out, permuted_probs, x, source, probs, tokens, H, HAS_PROBS: tl.constexpr, BLOCK: tl.constexpr):
    """out[row] = x[source[row]], zero where that lies outside."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    found = tl.load(source + row)
    inside = (found >= 0) & (found < tokens)
    values = tl.load(x + found.to(tl.int64) * H + column, mask=(column < H) & inside, other=0)
    tl.store(out + row * H + column, values, mask=column < H)
    if HAS_PROBS:
        prob = tl.load(probs + found, mask=inside, other=0)
        tl.store(permuted_probs + row, prob, mask=tl.program_id(1) == 0)
