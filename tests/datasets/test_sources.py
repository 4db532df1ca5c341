"""Finding and downloading raw files, against a real server; work spread over processes."""

import gzip
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import refuses
from tests.datasets.jobs import work
from tests.serving import Server, serving
from usboost.data.progress import spread
from usboost.datasets.sources import RemoteFile, content_sha256, find_source, sha256
from usboost.errors import UsboostError

CONTENT = b"18, Not in universe\n" * 5000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture
def fetch(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def run(digest: str | None = DIGEST) -> Path:
        files = [RemoteFile("raw.gz", server.url, digest)]
        return find_source("census", files, folder=None, cache=tmp_path)

    return run


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_persons_folder_that_holds_all_files_is_taken_without_network(tmp_path: Path) -> None:
    own = tmp_path / "own" / "census"
    own.mkdir(parents=True)
    (own / "a.gz").write_bytes(b"anything")
    files = [RemoteFile("a.gz", "http://127.0.0.1:9/a.gz", DIGEST)]
    assert find_source("census", files, folder=tmp_path / "own", cache=tmp_path / "cache") == own
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_holds_only_some_files_is_passed_over(server: Server, tmp_path: Path) -> None:
    own = tmp_path / "own" / "census"
    own.mkdir(parents=True)
    (own / "a.gz").write_bytes(b"anything")
    server.answers = [(200, CONTENT, None)]
    files = [RemoteFile("a.gz", server.url, DIGEST), RemoteFile("b.gz", server.url, DIGEST)]
    place = find_source("census", files, folder=tmp_path / "own", cache=tmp_path / "cache")
    assert place == tmp_path / "cache" / "census"
    assert sorted(leftovers(place)) == ["a.gz", "b.gz"]


@pytest.mark.parametrize("level", [None, 1, 9])
def test_the_digest_is_of_the_content(server: Server, fetch: Callable[..., Path], level: int | None) -> None:
    body = CONTENT if level is None else gzip.compress(CONTENT, level)
    server.answers = [(200, body, None)]
    place = fetch()
    assert (place / "raw.gz").read_bytes() == body
    assert content_sha256(place / "raw.gz") == DIGEST
    assert sha256(place / "raw.gz") == hashlib.sha256(body).hexdigest()
    assert fetch() == place
    assert server.asked == 1, "a file that is there is not fetched again"


def test_an_unknown_digest_is_not_checked(server: Server, fetch: Callable[..., Path]) -> None:
    server.answers = [(200, b"whatever", None)]
    assert (fetch(None) / "raw.gz").read_bytes() == b"whatever"


BODIES = [b"another content", gzip.compress(b"another", mtime=0), gzip.compress(CONTENT, mtime=0)[:-9]]


@pytest.mark.parametrize("body", BODIES, ids=["plain", "zipped", "cut short"])
def test_wrong_is_final(server: Server, fetch: Callable[..., Path], tmp_path: Path, body: bytes) -> None:
    server.answers = [(200, body, None)]
    with pytest.raises(UsboostError, match=r"raw\.gz") as caught:
        fetch()
    assert not isinstance(caught.value.__cause__, OSError)
    assert server.asked == 1
    assert leftovers(tmp_path) == []


def test_a_passing_failure_is_survived(server: Server, fetch: Callable[..., Path]) -> None:
    server.answers = [(503, b"busy", None), (200, CONTENT, 10), (200, CONTENT, None)]
    assert (fetch() / "raw.gz").read_bytes() == CONTENT
    assert server.asked == 3


def test_a_file_that_the_server_has_not_is_asked_for_once(server: Server, fetch: Callable[..., Path]) -> None:
    server.answers = [(404, b"", None)]
    with pytest.raises(UsboostError, match="404") as caught:
        fetch()
    assert caught.value.__cause__ is None
    assert server.asked == 1


def test_offline_says_which_file_to_put_where(server: Server, tmp_path: Path) -> None:
    url = server.url.replace(str(server.server_port), "9")
    files = [RemoteFile("census-income.data.gz", url, DIGEST)]
    with pytest.raises(UsboostError) as caught:
        find_source("census_income_kdd", files, folder=tmp_path / "nowhere", cache=tmp_path / "cache")
    assert isinstance(caught.value.__cause__, OSError)
    advice = (
        "put census-income.data.gz into $USBOOST_DATA/census_income_kdd/ or allow the download from " + url
    )
    assert str(caught.value).endswith(advice)


def test_results_keep_the_order_of_jobs_that_other_processes_do() -> None:
    found = list(spread(work, range(9), 2))
    assert [job for job, _ in found] == list(range(9))
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert list(spread(work, [1, 3], 1)) == [(1, os.getpid()), (3, os.getpid())]


def test_jobs_are_taken_only_a_few_ahead() -> None:
    jobs = iter(range(1000))
    results = spread(work, jobs, 2)
    assert [next(results)[0] for _ in range(3)] == [0, 1, 2]
    assert next(jobs) <= 3 + 2 * 2
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_back_as_it_was(workers: int) -> None:
    results = spread(work, range(5, 100), workers)
    assert [next(results)[0] for _ in range(5)] == [5, 6, 7, 8, 9]
    refuses("job 10 cannot be done", next, results)
