"""A drawing as SVG text: lines, boxes and words on a paper of its own, which is dark where the reader's screen is.

The colours are classes, so that a figure says what a thing is and one place says how that looks; the paper is drawn, so that a figure reads the
same on any page. Blue and orange are told apart by readers who see no red or green, and the shapes differ besides.
"""

import html

STYLE = """
text { font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328 }
.big { font-size: 16px; font-weight: 600 } .small { font-size: 12px } .bold { font-weight: 600 }
.code { font-family: ui-monospace, 'DejaVu Sans Mono', monospace }
.faint { fill: #59636e } .paper { fill: #ffffff; stroke: #d1d9e0 } .box { fill: #f3f5f8; stroke: #8c959f }
.rule { stroke: #d1d9e0 } .one { stroke: #59636e }
.file { fill: #ddf0ff; stroke: #0969da }
.good { fill: #0969da } .bad { fill: #bc4c00 } .open { fill: none; stroke: #bc4c00; stroke-width: 1.6 }
.plain { fill: #8c959f } .arrow { stroke: #59636e; fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #9198a1 } .paper { fill: #0d1117; stroke: #3d444d } .box { fill: #1c232c; stroke: #656c76 }
.rule { stroke: #30363d } .one { stroke: #9198a1 } .file { fill: #10294a; stroke: #4c9dff } .good { fill: #4c9dff } .bad { fill: #f0883e }
.open { stroke: #f0883e } .plain { fill: #656c76 } .arrow { stroke: #9198a1 } }
"""


class Drawing:
    def __init__(self, width, title):
        self.width, self.title, self.parts = width, title, []

    def add(self, tag, content=None, **attributes):
        given = {name.rstrip("_").replace("_", "-"): html.escape(str(value)) for name, value in attributes.items() if value is not None}
        words = "".join(f' {name}="{value}"' for name, value in given.items())
        self.parts.append(f"<{tag}{words}/>" if content is None else f"<{tag}{words}>{content}</{tag}>")

    def text(self, x, y, words, kind=None, anchor=None):
        self.add("text", html.escape(words, quote=False), x=f"{x:g}", y=f"{y:g}", class_=kind, text_anchor=anchor, xml__space="preserve")

    def box(self, x, y, width, height, kind="box", radius=None):
        self.add("rect", x=f"{x:.5g}", y=f"{y:g}", width=f"{width:.5g}", height=f"{height:g}", rx=radius, class_=kind)

    def line(self, x1, y1, x2, y2, kind="rule", dashes=None):
        self.add("line", x1=f"{x1:.5g}", y1=f"{y1:g}", x2=f"{x2:.5g}", y2=f"{y2:g}", class_=kind, stroke_dasharray=dashes)

    def dot(self, x, y, radius, kind, said):
        self.add("circle", f"<title>{html.escape(said)}</title>", cx=f"{x:.5g}", cy=f"{y:g}", r=radius, class_=kind)

    def arrow(self, *points):
        """Along the points, with a head at the last."""
        (x0, y0), (x1, y1) = points[-2:]
        across, down = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        left, right = ((x1 - 6 * across + 4 * side * down, y1 - 6 * down + 4 * side * across) for side in (-1, 1))
        path = [*points, left, points[-1], right]
        self.add("path", d="M" + " L".join(f"{x:g} {y:g}" for x, y in path), class_="arrow")

    def svg(self, height):
        body = "\n".join(self.parts).replace("xml--space", "xml:space")
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" viewBox="0 0 {self.width} {height}" role="img">\n'
                f"<title>{html.escape(self.title)}</title>\n<style>{STYLE}</style>\n"
                f'<rect class="paper" x="0.5" y="0.5" width="{self.width - 1}" height="{height - 1}" rx="6"/>\n{body}\n</svg>\n')
