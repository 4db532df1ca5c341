"""Make a dataset: its raw files, found, downloaded or generated, and the prepared form made of them."""

from pathlib import Path

from flows.flow import Dataset, command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks import settings as params
from tasks.data import has_changed, obtain_raw, prepare_dataset
from tasks.folders import prepared_folder, work_folder


@flow(name="data", flow_run_name="data-{dataset}")
def data(dataset: Dataset) -> Path:
    """Make data/raw/<dataset> and, of it, data/prepared/<dataset>: splits as Parquet, and a card.

    Args:
        dataset: dataset to make, e.g. ci_a
    """
    settings = params.load()
    running = f"the dataset {dataset} is being made or fitted to in this folder; wait for it"
    made, fitted = (runtime.alone(work_folder(dataset) / f"{each}.lock", running) for each in ("data", "fit"))
    with made, fitted:
        obtain_raw(dataset, settings, runtime.home() / "downloads")
        card = prepare_dataset(dataset, settings)
    splits = card["splits"].items()
    listed = ", ".join(f"{entry['rows']:,} {split}" for split, entry in splits)
    target = f"{len(card['classes'])} classes" if card["classes"] else "a number to predict"
    page.log(f"{dataset}: {listed} rows; {len(card['columns'])} columns, {target}")
    rows = [
        {"split": split, "rows": entry["rows"], **(entry.get("classes") or entry["label"])}
        for split, entry in splits
    ]
    page.show_table(page.key("prepared", dataset), rows, f"Rows of {dataset}, and their labels")
    return runtime.finished(prepared_folder(dataset))


def prepare_again(dataset: str, settings: params.Settings, new_data: bool = False) -> None:
    """Make a dataset anew if its raw files or settings have changed, or raw data is to be read again."""
    if changed := has_changed(dataset, settings):
        print(f"{dataset}: files, settings or code have changed; it is prepared again", flush=True)
    if changed or new_data:
        data(dataset)


app = command(__name__, data)
