"""The bars that the committed run missed, each with how much of its limit was reached, from 0 on."""

from svg import Drawing


def missed(results):
    """Every bar that a section missed: how much of its limit was reached."""
    bars = [(section, bar) for section, found in results["sections"].items() for bar in found["bars"]]
    lost = [(section, bar) for section, bar in bars if not bar["holds"]]
    numbers = [(section, bar) for section, bar in lost if not isinstance(bar["found"], bool)]
    left, full = 560, 240
    drawing = Drawing(960, "Bars that are missed")
    drawing.text(18, 30, f"The bars that are missed: {len(lost)} of {len(bars)}", "big")
    drawing.text(18, 50, f"How much of its limit each reached, at its run's date, on the {results['device']}; the longer the better. The other "
                 f"{len(bars) - len(lost)} hold.", "faint")
    top = y = 92
    drawing.text(left, 78, "0", "faint small", "middle")
    drawing.text(left + full, 78, "100 %: the limit", "faint small", "middle")
    section_before = None
    for section, bar in numbers:
        if section != section_before:
            drawing.text(18, y + 4, f"{section}, {results['sections'][section]['date']}", "bold small")
            section_before, y = section, y + 17
        share = bar["found"] / bar["limit"] if bar["at_least"] else bar["limit"] / bar["found"]
        drawing.text(left - 10, y + 4, bar["name"], "small", "end")
        drawing.box(left, y - 5, full * share, 10, "bad")
        side = "least" if bar["at_least"] else "most"
        drawing.text(left + 12 + full, y + 4, f"{bar['found']:.3g}, at {side} {bar['limit']:.3g} {bar['unit']}".rstrip(), "faint small")
        y += 17
    drawing.line(left, top - 8, left, y - 8, "one")
    drawing.line(left + full, top - 8, left + full, y - 8, "one", "3 3")
    y += 8
    drawing.text(18, y + 4, "Without a number", "bold small")
    for section, bar in (one for one in lost if isinstance(one[1]["found"], bool)):
        y += 17
        drawing.text(30, y + 4, f"{section}, {results['sections'][section]['date']}: {bar['name']}", "small")
    return drawing.svg(y + 20)
