"""The notebooks run, and the stored notebooks match their sources."""

import nbformat
import pytest
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
