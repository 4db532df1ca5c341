"""Make a dataset: its raw files, found, downloaded or generated, and the prepared form made of them."""

from pathlib import Path

from flows.flow import Dataset, command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks import settings as params
from tasks.data import obtain_raw, own_table_has_changed, prepare_dataset
from tasks.folders import prepared_folder, work_folder


@flow(name="data", flow_run_name="data-{dataset}")
def data(dataset: Dataset) -> Path:
    """Make data/raw/<dataset> and, of it, data/prepared/<dataset>: splits as Parquet, and a card.

    Args:
        dataset: dataset to make, e.g. ci_a
    """
    settings = params.load()
    running = f"the dataset {dataset} is being made in this folder; wait for it"
    with runtime.alone(work_folder(dataset) / "data.lock", running):
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
    """Make a dataset anew if a user's table or its settings have changed, or raw data is to be read again."""
    if has_changed := dataset == "user_table" and own_table_has_changed(settings):
        print("the table, an image of it or its settings have changed; it is prepared again", flush=True)
    if has_changed or new_data:
        data(dataset)


app = command(__name__, data)
