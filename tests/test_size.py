"""The project stays within its budget; whoever needs more takes something away first."""

from tests import size


def test_no_part_is_larger_than_its_budget() -> None:
    sizes, limits = size.now(), size.budget()
    assert sizes.keys() == limits.keys()
    over = [part for part in sizes if sizes[part] > limits[part]]
    assert not over, f"{', '.join(over)} over the budget in pyproject.toml:\n{size.table()}"


def test_sizes_are_those_of_the_files() -> None:
    files = {
        "usboost/a.py": "1\n2\n",
        "usboost/b/c.py": "1\n",
        "usboost/page.j2": "1\n2\n",
        "flows/d.py": "1\n",
        "dvc.yaml": "a: 1\nb: 2\n",
        "docs/results/e.md": "three plain words",
        "docs/figures/f.svg": "no words",
    }
    found = size.measured(list(files), files.__getitem__)
    assert found == {"usboost": 3, "usboost_files": 2, "pipeline": 3, "benchmarks": 0, "tests": 0, "words": 3}
