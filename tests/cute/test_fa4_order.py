"""The orders in which kernels of FlashAttention-4 take tiles. Blocks that stay (kernels/attention/fa4_persistent.py) take every tile once
between them, each in rising order, and of tiles that differ their sums stay as even as tiles allow, whatever sections and rounds come to.
Backward (fa4_backward.py) every tile of a causal mask is taken once, and blocks end together. Needs nothing: orders are plain arithmetic."""

import ast
import heapq
import itertools
import pathlib
import random

ATTENTION = pathlib.Path(__file__).resolve().parents[2] / "kernels/attention"
AT_ONCE = 132


def order_of(file, name, **constants):
    """A function, without the rest of its module, which wants CuTe DSL."""
    tree = ast.parse((ATTENTION / file).read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    exec(compile(tree, file, "exec"), constants)
    return constants[name]


next_tile = order_of("fa4_persistent.py", "next_tile")
most_queries_first = order_of("fa4_backward.py", "most_queries_first", LAST=2 * AT_ONCE)


def taken(block, blocks, section, tiles):
    tile = block
    while tile < tiles:
        yield tile
        tile = next_tile(tile, block, blocks, section, section)


def test_every_tile_is_taken_once_and_in_rising_order():
    chance = random.Random(7)
    for _ in range(300):
        tiles, section, blocks = chance.randint(1, 3000), chance.randint(1, 1500), chance.choice([1, 7, 132, 264, 396])
        of_each = [list(taken(block, blocks, section, tiles)) for block in range(blocks)]
        assert sorted(sum(of_each, [])) == list(range(tiles)), (tiles, section, blocks)
        assert all(one == sorted(one) for one in of_each), (tiles, section, blocks)


def test_sums_of_causal_tiles_are_even():
    """Within a tile and a half of the most keys, and so within 4 % at 30 tiles a block."""
    for heads, of_section, levels, blocks in ((16, 4, 128, 132), (480, 64, 8, 132), (32, 16, 32, 132), (440, 64, 6, 132), (880, 64, 12, 264)):
        keys = [levels - place // min(of_section, heads - begin) for begin in range(0, heads, of_section)
                for place in range(min(of_section, heads - begin) * levels)]
        sums = [sum(keys[tile] for tile in taken(block, blocks, of_section * levels, len(keys))) for block in range(blocks)]
        assert max(sums) <= sum(keys) / blocks + 1.5 * levels, (heads, levels, max(sums), sum(keys) / blocks)
        assert max(sums) <= 1.04 * sum(keys) / blocks or len(keys) < 30 * blocks


def tiles_of(grid):
    """As blocks are started."""
    return [most_queries_first(place[::-1], grid) for place in itertools.product(*map(range, grid[::-1]))]


def test_every_tile_of_a_grid_is_taken_once():
    chance = random.Random(8)
    for _ in range(300):
        grid = chance.randint(1, 300), chance.randint(1, 12), chance.randint(1, 12)
        assert sorted(tiles_of(grid)) == sorted(itertools.product(*map(range, grid))), grid


def test_causal_tiles_end_together():
    """Where a block that ends makes room for the next one, the last one ends within half a longest tile of when all would, were work even; in a
    grid's own order up to a longest tile and a half."""
    for blocks, heads, batches in ((64, 8, 1), (16, 16, 4), (16, 8, 4), (32, 12, 2), (9, 60, 2), (66, 32, 1)):
        ends = [0] * AT_ONCE
        for block, _, _ in tiles_of((blocks, heads, batches)):
            heapq.heappush(ends, heapq.heappop(ends) + blocks - block)
        assert max(ends) <= heads * batches * blocks * (blocks + 1) / 2 / AT_ONCE + blocks / 2, (blocks, heads, batches)


def test_the_docstrings_examples():
    assert [next_tile(tile, 1, 4, 8, 8) for tile in (1, 6, 9)] == [6, 9, 14]
    assert [most_queries_first((0, head, 0), (200, 4, 1)) for head in range(4)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (100, 2, 0)]
