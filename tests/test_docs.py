"""Every Python example in README and docs runs as it is printed."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import lwd
from lwd.representations.ldm import autoencoder_from_ldm
from reference import busy_network, ldm, small_config
from sefi import write_autoencoder, write_model, write_text_encoder

ROOT = Path(__file__).parents[1]
PAPER = ROOT.parents[0] / "shared" / "paper"
LONG = ("objective.md",)
"""Pages whose examples take more than five seconds."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A working directory with small models under the names that the pages use."""
    layout = lwd.Layout.of(texture=4, semantic=2)
    for seed, name in enumerate(("sfd-xl", "sfd-b")):
        network = busy_network(small_config(layout, classes=1000), seed)
        pipe = lwd.LWDPipeline(lwd.Checkpoint(network, lwd.Offset(0.3)), autoencoder_from_ldm(ldm()[1]))
        pipe.save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in PAGES
        if "```python" in page.read_text()
    ],
)
def test_examples_run(page, models, monkeypatch):
    if page.name == "sefi.md":
        monkeypatch.setenv("LWD_CACHE", str(models / "cache"))
        write_text_encoder(write_autoencoder(write_model(models / "SeFi-Image" / "SeFi-Image-1B-Base")))
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


def test_lines_wrap_at_120():
    """Oracle: counting. Rows of tables and pictures cannot be wrapped, quoted messages are as lwd prints them."""
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        text = re.sub(r"```text\n.*?```", lambda block: "\n" * block[0].count("\n"), page.read_text(), flags=re.DOTALL)
        for number, line in enumerate(text.splitlines(), 1):
            assert len(line) <= 120 or line.startswith(("|", "![")), f"{page.name}:{number}"


def test_links_between_pages_lead_somewhere():
    """Oracle: the files, and GitHub's anchors of their headings: small letters, no punctuation, hyphens for spaces."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page.name}: {target}#{anchor}"


def test_every_equation_of_the_paper_has_a_function_and_a_test():
    """Oracle: the labels of the paper, the modules, and the tests' source."""
    text = (ROOT / "docs" / "paper.md").read_text()
    block = re.search(r"<!-- equations -->\n(.*?)<!-- end -->", text, re.DOTALL)[1]
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in block.splitlines()[2:]]
    assert len({row[0] for row in rows}) == len(rows) == 48
    for _, function, test in rows:
        module, _, names = function.partition(":")
        found = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
        assert callable(found)
        path, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text(), test
    if papers := list(PAPER.glob("*.txt")):  # where the paper's text is at hand
        assert {row[0] for row in rows} == set(re.findall(r"\\label\{eq:([\w-]+)\}", papers[0].read_text()))
