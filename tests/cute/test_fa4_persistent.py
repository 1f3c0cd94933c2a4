"""Blocks that stay (kernels/attention/fa4_persistent.py) take every tile once between them, each in rising order, and of tiles that differ
their sums stay as even as tiles allow, whatever sections and rounds come to. Needs nothing: the order is plain arithmetic."""

import ast
import pathlib
import random

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "kernels/attention/fa4_persistent.py"


def order_of(path):
    """next_tile, without the rest of the module, which wants CuTe DSL."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "next_tile"]
    found = {}
    exec(compile(tree, path, "exec"), found)
    return found["next_tile"]


next_tile = order_of(SOURCE)


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


def test_the_docstrings_example():
    assert [next_tile(tile, 1, 4, 8, 8) for tile in (1, 6, 9)] == [6, 9, 14]
