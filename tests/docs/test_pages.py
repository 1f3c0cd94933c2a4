"""Promise: the pages of docs/ run as they stand, in order, in a folder of their own with a bundle of the kernels; troubleshooting is the
command's own table; every page is reached from the first one, and has a place in the site's navigation; links lead to headings that there are; and
where the generator is installed, a site is made of them without a warning."""

import html
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
LANGUAGES = {"python", "sh", "text", "toml", "cpp", "c"}
each_page = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])


def blocks(page):
    return FENCE.findall(page.read_text())


@pytest.fixture
def desk(command, tmp_path):
    """The environment of a folder with the bundle, where a page's commands find kbundle, Python and the library."""
    bundle = ROOT / "build/kernels.kb"
    assert bundle.exists(), "run `build/release/kbundle build kernels -o build/kernels.kb`"
    (tmp_path / "kernels.kb").symlink_to(bundle)
    about = tmp_path / ".installed/kbundle-0.1.0.dist-info"  # as pip writes it: names the build hook
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kbundle\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[hatch]\nkbundle = kbundle._hatch\n")
    path = [str(pathlib.Path(command).parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    python = [str(tmp_path), str(about.parent), str(ROOT / "ffi/python"), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, PATH=os.pathsep.join(path), PYTHONPATH=os.pathsep.join(python), JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="",
                KBUNDLE_PYTHON=sys.executable, KBUNDLE_LIBRARY=os.path.realpath(os.environ["KBUNDLE_LIBRARY"]),
                KBUNDLE_INCLUDE=str(ROOT / "ffi/c/include"))


def run(words, folder, environment, text):
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def installed(package):
    """By its distribution: a folder of the tests may have the module's name."""
    try:
        return bool(importlib.metadata.version({"warp": "warp-lang"}.get(package, package)))
    except importlib.metadata.PackageNotFoundError:
        return False


@each_page
def test_a_page_runs_as_it_stands(page, desk, tmp_path):
    for package in NEEDS.findall(page.read_text()):
        if not installed(package):
            pytest.skip(f"{page.name}: no {package} here: scripts/setup --{package} installs it")
    shell = [text for language, _, text in blocks(page) if language == "sh" and not text.startswith("# needs a GPU")]
    if any(re.search(r"^kbundle build kernels\b", text, re.M) for text in shell):
        shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    for _, name, text in blocks(page):
        if name:
            (tmp_path / name).write_text(text)
    for language, name, text in blocks(page):
        if text in shell:
            run(["bash", "-euc", text], tmp_path, desk, text)
    program = "\n".join(text for language, name, text in blocks(page) if language == "python" and not name)
    if program:
        run([sys.executable, "-c", program], tmp_path, desk, program)


@each_page
def test_what_is_not_run_is_at_least_understood(page, command):
    assert 2 * len(blocks(page)) == page.read_text().count("```"), "a fence that FENCE does not see"
    for language, name, text in blocks(page):
        assert language in LANGUAGES, f"say in tests/docs how a block of {language!r} is held"
        assert language not in ("c", "cpp", "toml") or name or "[project.entry-points" in text
        if language != "sh" or not text.startswith("# needs a GPU"):
            continue
        for line in text.splitlines()[1:]:
            words = line.split("#")[0].split()
            assert words[0] == "kbundle"
            said = subprocess.run([command, words[1], "--help"], capture_output=True, text=True).stdout
            for option in (word for word in words if word.startswith("-")):
                assert option in said, f"{line}: {words[1]} has no {option}"


def test_every_page_is_reached_from_the_first():
    seen, waiting = set(), ["index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += re.findall(r"\]\(([\w-]+\.md)(?:#[\w-]*)?\)", (ROOT / "docs" / page).read_text())
    assert seen == {page.name for page in PAGES}


@pytest.fixture(scope="module")
def site_maker():
    """scripts/docs, as a module."""
    loader = importlib.machinery.SourceFileLoader("docs_site", str(ROOT / "scripts/docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("docs_site", loader))
    loader.exec_module(module)
    return module


def test_a_page_that_is_in_no_navigation_is_an_error(site_maker):
    pages = ["index.md", "docs/reference.md"] + [path.relative_to(ROOT).as_posix() for pattern in site_maker.PAGES for path in ROOT.glob(pattern)
                                                 if path != ROOT / "docs/index.md"]
    placed = [page for _, here in site_maker.navigation(pages) for page in here]
    assert sorted(placed) == sorted(pages)
    with pytest.raises(SystemExit, match="docs/lost.md"):
        site_maker.navigation([*pages, "docs/lost.md"])
    with pytest.raises(SystemExit, match="names quickstart"):
        site_maker.navigation([page for page in pages if page != "docs/quickstart.md"])


def test_links_to_headings_lead_to_headings(site_maker):
    """Where no generator is installed, too, and from README.md, which is no page of the site."""
    headings, wrong, count = {}, [], 0

    def anchors(page):
        if page not in headings:
            prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
            headings[page] = {site_maker.anchor(heading) for heading in re.findall(r"^#{1,6} (.*)$", prose, re.M)}
        return headings[page]

    for page in [ROOT / "README.md", *(path for pattern in site_maker.PAGES for path in ROOT.glob(pattern))]:
        for target, place in re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", page.read_text()):
            to = (page.parent / target).resolve() if target else page
            count += 1
            if to.suffix == ".md" and place not in anchors(to):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{place}")
    assert count > 20 and not wrong


def test_troubleshooting_is_the_commands_own_table(command):
    text = (ROOT / "docs/troubleshooting.md").read_text()
    said = subprocess.run([command, "explain-error", "--markdown"], capture_output=True, text=True, check=True).stdout
    assert text.split("kbundle explain-error --markdown -->\n\n")[1] == said, "the page ends otherwise than the command says"


def test_figures_of_the_comparison_are_in_the_results():
    results = (ROOT / "tests/gpu/results/nvidia_h200.md").read_text()
    page = (ROOT / "docs/comparison.md").read_text()
    [softcap] = re.findall(r"softcap, us: .*: \[(.*)\]", results)
    flex_forward, flex_backward, forward, backward = [round(float(number)) for number in softcap.split(", ")[:4]]
    assert f"| {forward} / {backward} us | `flex_attention`: {flex_forward} / {flex_backward} |" in page
    speeds = dict(re.findall(r"^\| softmax\.(scaled\w*) bf16 \[4, 16, 2048, 2048\] \| ([\d.]+)", results, re.M))
    wanted = tuple(float(speeds[f"scaled{kind}_forward"]) for kind in ("", "_masked", "_causal"))
    assert "%.2f / %.2f / %.2f TB/s" % wanted in page
    small = re.search(r"^\| scaled_forward bfloat16\[1, 1, 8, 64\] \|[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) ", results, re.M)
    assert f"({small[2]} us against {small[3]}, though its kernel alone takes {small[1]})" in page
    steps = [float(one) for one in re.findall(r": step by JAX's \| ([\d.]+)", results)]
    assert f"{min(steps):.2f} to {max(steps):.2f} of its time" in page


def leading_nowhere(texts):
    """Links between pages of the site to what is not there: the generator warns of files alone where it does not know a heading."""
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in texts.items()}
    wrong = []
    for path, text in texts.items():
        for target in map(html.unescape, re.findall(r'(?:href|src)="([^":]+)"', text)):
            name, _, place = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            to = to / "index.html" if to.is_dir() else to
            if not to.exists() or place not in ("", "__top") and to in ids and place not in ids[to]:
                wrong.append(f"{path}: {target}")
    return wrong


def test_the_site_is_made_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("no mkdocs-material here: scripts/setup --docs installs it")
    site = tmp_path / "site"
    done = subprocess.run([sys.executable, ROOT / "scripts/docs", "--into", site], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES:
        assert (site / "docs" / page.stem / "index.html").exists() or page.stem == "index"
    texts = {path: path.read_text() for path in site.rglob("index.html")}
    assert not [path for path, text in texts.items() if "```" in text], "a fence that the generator does not know"
    running_on = re.compile(r"<p>[^\n]*(?:\n(?!</p>|<pre)[^\n]*)*?\n *(?:- |\|)")
    assert not [path for path, text in texts.items() if running_on.search(re.sub(r"<pre.*?</pre>", "", text, flags=re.S))], "a list that is none"
    assert not leading_nowhere(texts)
    reference = (site / "docs/reference/index.html").read_text()
    for name in ("dot_product_attention", "kb_plan_make", "kbundle.open", "scaled_softmax", "register_derivative"):
        assert name in reference, name
    loads = re.findall(r"<(?:script|link rel=\"stylesheet\"|img)[^>]+(?:src|href)=\"(https?:[^\"]*)\"", (site / "index.html").read_text())
    assert not loads, "the site asks for something outside itself"
