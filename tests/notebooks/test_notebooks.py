"""The notebooks run, and the stored notebooks match their sources.

`make notebooks-check` compares the stored outputs, too.
"""

import base64
import copy
import io
import re

import nbformat
import pytest
from PIL import Image, ImageOps
from support.paths import ROOT, importing_from

with importing_from(ROOT / "tools"):
    import render_notebooks

each = pytest.mark.parametrize("source", render_notebooks.sources(), ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert render_notebooks.sources()


@pytest.fixture(scope="module")
def kernel():
    """A kernel for all notebooks: to start it and to import takes as long as most of them run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPILLWAY_FAST", "1")
        with render_notebooks.kernel() as running:
            yield running


@pytest.mark.slow
@each
def test_runs(source, kernel):
    notebook = render_notebooks.read_source(source)
    render_notebooks.execute(notebook, kernel)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@each
def test_stored_notebook_has_the_cells_of_its_source(source):
    assert render_notebooks.differences(source) == []


@each
def test_a_notebook_asks_answers_and_states_its_time(source):
    cells = render_notebooks.read_source(source).cells
    question = cells[0].source.split("\n")[0]
    assert re.fullmatch(r"# .+\?", question), question
    stated = re.search(r"^It takes about (\d+) s of processor time\.$", cells[0].source, re.M)
    assert int(stated[1]) <= render_notebooks.MOST_PROCESSOR_S
    assert "**So set**" in cells[-1].source


@each
def test_stored_notebook_is_executed_in_order_and_small(source):
    path = source.with_suffix(".ipynb")
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert path.stat().st_size <= render_notebooks.LARGEST_BYTES


def test_a_changed_source_is_noticed(tmp_path):
    source = tmp_path / "changed.py"
    source.write_text("# %%\n1 + 1\n", encoding="utf-8")
    assert render_notebooks.differences(source) == ["changed.ipynb is missing"]
    nbformat.write(render_notebooks.read_source(source), source.with_suffix(".ipynb"))
    assert render_notebooks.differences(source) == []
    source.write_text("# %%\n1 + 2\n", encoding="utf-8")
    assert render_notebooks.differences(source) == [
        "changed.ipynb: cell-00 is not that of changed.py"
    ]
    source.write_text("# %%\n1 + 2\n\n# %%\n3\n", encoding="utf-8")
    assert render_notebooks.differences(source) == ["changed.ipynb has 1 cells, changed.py 2"]


@pytest.mark.slow
def test_changed_outputs_are_noticed(tmp_path):
    source = tmp_path / "draws.py"
    source.write_text(
        "# %%\nimport matplotlib.pyplot as plt\nprint(1)\nline = plt.plot([1, 2])\n",
        encoding="utf-8",
    )
    render_notebooks.render(source)
    assert render_notebooks.check(source)[0] == []
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)

    def after(change, notebook=stored):
        changed = copy.deepcopy(notebook)
        change(changed)
        return render_notebooks.disagreements(changed, stored)

    def another_text(notebook):
        notebook.cells[0].outputs[0].text = "1\n2\n"

    def no_picture(notebook):
        notebook.cells[0].outputs[1].data.pop("image/png")

    def another_picture(notebook):
        png = base64.b64decode(notebook.cells[0].outputs[1].data["image/png"])
        image = Image.open(io.BytesIO(png)).convert("RGB")
        stream = io.BytesIO()
        ImageOps.invert(image).save(stream, "png")
        notebook.cells[0].outputs[1].data["image/png"] = base64.b64encode(
            stream.getvalue()
        ).decode()

    def another_picture_of_another_version(notebook):
        another_picture(notebook)
        notebook.metadata.versions.matplotlib = "1.0"

    assert after(another_text) == ["cell-00: '2' is now ''"]
    assert after(no_picture) == ["cell-00: another picture"]
    assert after(another_picture) == ["cell-00: another picture"]
    assert after(another_picture_of_another_version) == []
