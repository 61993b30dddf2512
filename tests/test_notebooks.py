"""The notebooks run from a clean kernel, and nothing of a run is kept in them."""

import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.usefixtures("quick_compile")

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TINY = """
    --devices cpu:1 --network.kind mlp --network.hidden 8 --network.layers 1
    --learner.advantage-steps 2 --learner.strategy-steps 2 --learner.batch-size 16
    --memory.advantage-capacity 500 --memory.strategy-capacity 500 --critic.capacity 500
"""
TINY_RULES = """
    --rules.colors 2 --rules.ranks 3 --rules.wagers 0 --rules.hand 2 --rules.max-turns 8
"""
# Sizes to test with, and what the outputs must say then.
SIZES = {
    "quickstart": {
        "OPPONENTS": ["random"],
        "SETTINGS": f"""
            {TINY} {TINY_RULES} --solver policy_gradient --gradient.steps 2 --critic.steps 2
            --iterations 2 --traversal.batch-width 8 --traversal.traversals 8
            --evaluation.every 1 --evaluation.games 4
        """,
        "GAMES": 4,
    },
    "batch_width": {"WIDTHS": [8], "ITERATIONS": 2, "SETTINGS": f"{TINY} --game kuhn"},
    "anatomy_of_a_traversal": {"LANES": 3, "TRAVERSALS": 5},
    "comparing_agents": {
        "BOTS": ["random", "discard-only"],
        "GAMES": 20,
        "SEARCHED": "random",
        "AGAINST": ["discard-only"],
        "SEARCH": "--search.worlds 2 --search.actions 2",
        "SEARCHED_GAMES": 20,
        "RULES": ["--rules", "mini", "--batch-width", "8"],
    },
}
BAR = "application/vnd.jupyter.widget-view+json"
SAYS = {
    "quickstart": [BAR, "image/png", "games a row", "data:text/html;base64"],
    "batch_width": [BAR, "image/png"],
    "anatomy_of_a_traversal": ["all finished: True", "5 traversals", "image/png"],
    "comparing_agents": ["Elo", "milliseconds a decision", "image/png"],
}


def name_of(path):
    return path.stem


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_all_notebooks_are_tested():
    assert [path.stem for path in NOTEBOOKS] == sorted(SIZES)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_kept_without_outputs(path):
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_the_sizes_of_a_notebook_are_in_one_cell(path):
    (sizes,) = [
        cell.source for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", ())
    ]
    missing = [name for name in SIZES[path.stem] if f"{name} = " not in sizes]
    assert not missing


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_from_a_clean_kernel(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # Compiling takes most of the time, and these sizes need no fast programs.
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    notebook = nbformat.read(path, as_version=4)
    values = "\n".join(f"{name} = {value!r}" for name, value in SIZES[path.stem].items())
    places = [
        place
        for place, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", ())
    ]
    notebook.cells.insert(places[0] + 1, nbformat.v4.new_code_cell(values))
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    said = str([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert not [text for text in SAYS[path.stem] if text not in said]
