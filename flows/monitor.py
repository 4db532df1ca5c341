"""Compare the rows that a served model was asked about with those that it was fitted to."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from flows.flow import Dataset, command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks.registered_models import compare_requests
from usboost.errors import UsboostError


@flow(name="monitor", flow_run_name="monitor-{dataset}")
def monitor(
    dataset: Dataset,
    requests: str,
    psi: Annotated[float, Field(gt=0)] = 0.2,
    share: Annotated[float, Field(gt=0, le=1)] = 0.1,
) -> str:
    """Compare a table of requests with the training rows of the champion; fails if a column drifts.

    Args:
        dataset: prepared dataset whose champion is served, e.g. user_table
        requests: table with the columns that the model reads
        psi: population stability index above which a column drifts
        share: by how much more rows may lack a value or hold an unseen category
    """
    version, run_id, columns = compare_requests(dataset, Path(requests), psi, share)
    page.link_run(run_id, f"monitor/{dataset}")
    page.link_version(version, "The served model whose training rows these were compared with")
    rows = columns.round(4).astype(object).where(columns.notna(), "").to_dict("records")
    page.show_table(page.key("drift", dataset), rows, f"{requests} against the training rows of {dataset}")
    for row in rows:
        page.log(", ".join(f"{name} {value}" for name, value in row.items() if value != ""))
    drifted = [f"{row['column']}: {row['drift']}" for row in rows if row["drift"]]
    if drifted:
        reason = f"{len(drifted)} of {len(columns)} columns drift ({'; '.join(drifted[:3])})"
        page.emit("usboost.drifted", dataset, {"dataset": dataset, "reason": reason})
        raise UsboostError(f"{requests}: {reason}")
    return runtime.finished(f"{requests}: none of {len(columns)} columns drifts")


app = command(__name__, monitor, print)
