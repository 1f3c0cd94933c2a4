"""The way of a kernel, from a source to a launch: what happens once, when a library is built, and what in every process."""

from svg import Drawing

BUILT = (
    ("manifest + sources", "what an op is, where", "a kernel is legal,", "how it is launched"),
    ("compile", "variants x targets,", "in CUDA, C++, Triton,", "Warp, CuTe DSL"),
    ("tune", "measured on a machine", "that has the device;", "records as text"),
    ("pack", "a base and deltas,", "each with its hash;", "the loader tries it"),
)
RUN = (
    ("open", "each hash and rule", "checked, once", ""),
    ("select", "by op, dtypes, shapes:", "legal, tuned, first;", "explain says why"),
    ("plan", "code loaded, geometry", "and workspace known,", "once a problem"),
    ("launch", "no lock, look-up,", "allocation or wait; a", "graph may capture it"),
)
WIDE, HIGH, GAP, LEFT = 168, 92, 24, 20


def lane(drawing, y, heading, boxes, left):
    drawing.text(left, y - 14, heading, "faint")
    for index, (name, *words) in enumerate(boxes):
        x = left + index * (WIDE + GAP)
        drawing.box(x, y, WIDE, HIGH, radius=5)
        drawing.text(x + 12, y + 24, name, "bold")
        for row, text in enumerate(words):
            drawing.text(x + 12, y + 44 + 17 * row, text, "small")
        if index:
            drawing.arrow((x - GAP, y + HIGH / 2), (x - 2, y + HIGH / 2))


def way():
    drawing = Drawing(960, "From a source to a launch")
    drawing.text(LEFT, 30, "From a source to a launch", "big")
    lane(drawing, 74, "once, when a library is built", BUILT, LEFT)
    end, file_x, file_wide = LEFT + 4 * WIDE + 3 * GAP, 812, 130
    drawing.arrow((end, 74 + HIGH / 2), (file_x - 2, 74 + HIGH / 2))
    drawing.box(file_x, 74, file_wide, HIGH, "file", 5)
    drawing.text(file_x + 12, 98, "library.kb", "bold code")
    for row, text in enumerate(("the bundle: one", "file, in a wheel", "or any folder")):
        drawing.text(file_x + 12, 118 + 17 * row, text, "small")
    drawing.arrow((file_x + file_wide / 2, 74 + HIGH), (file_x + file_wide / 2, 190), (LEFT + 8, 190), (LEFT + 8, 226))
    lane(drawing, 228, "    in every process, from JAX, PyTorch, C, C++ or tvm-ffi; nothing is compiled, tuned or downloaded", RUN, LEFT)
    drawing.arrow((end, 228 + HIGH / 2), (file_x - 2, 228 + HIGH / 2))
    drawing.text(file_x + 6, 228 + HIGH / 2 - 3, "results, on", "small")
    drawing.text(file_x + 6, 228 + HIGH / 2 + 14, "the stream given", "small")
    return drawing.svg(342)
