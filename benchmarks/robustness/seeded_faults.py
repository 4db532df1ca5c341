"""Seeded faults: how many of them `usboost check` finds, and how much of what it says is one.

``python -m benchmarks.robustness.seeded_faults [--table lesions.parquet --label dx]``

Drawn images get near-equal copies by eight kinds of change, at 1, 5 and 50 % of rows. Tables of them have
groups of 2, 5 and 30 rows, a missing value or a file's size that tells the label, or 3 % of labels exchanged.
Rows of a table get such copies with their columns, and 3 % of its labels are exchanged.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import typer
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

from usboost.check import check_table, embeddings_of
from usboost.check.groups import codes_of
from usboost.check.neighbours import find_twins, whitened
from usboost.data.images import Images
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

CLASSES, ROWS, SIDE = 5, 600, 96
BACKBONE = Backbone(cache="off")
Change = Callable[[Image.Image, np.random.Generator], Image.Image]


def drawn(code: int, rng: np.random.Generator) -> Image.Image:
    """Draw an image of a class: ellipses of its colour among others, on a smooth ground."""
    small = rng.integers(90, 220, (4, 4, 3)).astype(np.uint8)
    image = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    hue = np.array([[200, 40, 40], [40, 170, 60], [50, 70, 200], [200, 170, 30], [150, 40, 170]])[code]
    for k in range(8):
        x, y, a, b = rng.uniform(0, SIDE, 2).tolist() + rng.uniform(6, 30, 2).tolist()
        colour = hue + rng.integers(-40, 40, 3) if k < 4 else rng.integers(0, 255, 3)
        pen.ellipse((x, y, x + a, y + b), fill=tuple(map(int, np.clip(colour, 0, 255))))
    return image.filter(ImageFilter.GaussianBlur(1))


def as_jpeg(image: Image.Image, quality: int = 90) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality)
    return out.getvalue()


def cut(image: Image.Image, share: float) -> Image.Image:
    w, h = image.size
    x, y = int(w * share), int(h * share)
    return image.crop((x, y, w - x, h - y)).resize((w, h), Image.Resampling.BILINEAR)


def noisy(image: Image.Image, rng: np.random.Generator, scale: float) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float64)
    return Image.fromarray(np.clip(pixels + rng.normal(0, scale, pixels.shape), 0, 255).astype(np.uint8))


CHANGES: dict[str, Change] = {
    "re-encoded": lambda image, rng: Image.open(io.BytesIO(as_jpeg(image, 35))).convert("RGB"),
    "scaled": lambda image, rng: image.resize((image.width // 2,) * 2).resize(image.size),
    "cropped": lambda image, rng: cut(image, 0.06),
    "turned": lambda image, rng: image.transpose(Image.Transpose.ROTATE_90),
    "mirrored": lambda image, rng: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "brighter": lambda image, rng: ImageEnhance.Brightness(image).enhance(1.3),
    "noisy": lambda image, rng: noisy(image, rng, 12),
    "second shot": lambda image, rng: noisy(cut(image.rotate(6, Image.Resampling.BILINEAR), 0.1), rng, 4),
}


def twins(
    images: Images, share: float, change: str, clean: np.ndarray, columns: Sequence[np.ndarray] = ()
) -> tuple[float, float]:
    """Add changed copies of some images, of which `clean` are embeddings; return recall and precision."""
    rng, n = np.random.default_rng(0), len(images)
    sources = rng.permutation(n)[: round(n * share)]
    made = [CHANGES[change](Image.fromarray(images.decode([k])[0].transpose(1, 2, 0)), rng) for k in sources]
    copies = np.stack([np.asarray(image) for image in made]).transpose(0, 3, 1, 2)
    every = Images(np.concatenate([images.decode(), copies]))
    both = np.concatenate([clean, embedded(Images(copies), BACKBONE, torch.device("cpu")).numeric])
    codes = [np.append(each, each[sources]) for each in columns]
    found = {(int(a), int(b)) for a, b in find_twins(whitened(both), every, codes)}
    right = len(found & {(int(source), n + k) for k, source in enumerate(sources)})
    return right / len(sources), right / max(len(found), 1)


def table_of(rng: np.random.Generator, fault: str = "", size: int = 0) -> tuple[UserTable, np.ndarray]:
    """Draw a table with a fault; return it, and the rows whose label was exchanged."""
    y = np.arange(ROWS) % CLASSES
    rng.shuffle(y)
    frame = pd.DataFrame(
        {f"x{k}": rng.normal(size=ROWS) + (4 if fault == "labels" else 1) * (y == k) for k in range(4)}
    )
    wrong, quality = np.zeros(0, dtype=np.int64), np.full(ROWS, 85)
    if fault == "groups":
        owner = np.arange(ROWS) // size
        y = rng.permutation(np.arange(ROWS // size) % CLASSES)[owner]
        for k in range(4):
            frame[f"x{k}"] = rng.normal(size=ROWS // size)[owner] + 0.1 * rng.normal(size=ROWS)
        frame["file"] = [f"thing{each:04d}_{k % size}" for k, each in enumerate(owner)]
    if fault == "missing":
        frame.loc[(y == 0) & (rng.random(ROWS) < 0.9), "x3"] = np.nan
    if fault == "file size":
        quality = np.where(y == 1, 70, 92)
    images = [as_jpeg(drawn(int(code), rng), int(q)) for code, q in zip(y, quality)]
    if fault == "labels":
        wrong = rng.permutation(ROWS)[: round(0.03 * ROWS)]
        y[wrong] = (y[wrong] + rng.integers(1, CLASSES, len(wrong))) % CLASSES
    frame = frame.assign(image=images, label=[f"class {code}" for code in y])
    frame = frame.iloc[order := rng.permutation(ROWS)].reset_index(drop=True)
    wrong = np.flatnonzero(np.isin(order, wrong))
    return read_table(FrameRows(frame), TableSpec(label="label", image=("image",), size=SIDE)), wrong


EXPECTED = {"groups": ("groups", "decides"), "labels": ("labels",)}
FAULTS = {"": (0,), "groups": (2, 5, 30), "missing": (0,), "file size": (0,), "labels": (0,)}


def exchanged(own: UserTable, clean: np.ndarray, rng: np.random.Generator) -> None:
    y = own.labels.copy()
    wrong = rng.permutation(len(y))[: round(0.03 * len(y))]
    y[wrong] = (y[wrong] + rng.integers(1, len(own.classes), len(wrong))) % len(own.classes)
    found = [each.examples for each in check_table(replace(own, labels=y), [clean]) if each.kind == "labels"]
    named = {row for examples in found for rows in examples for row in rows}
    print(f"labels exchanged, named, both: {len(wrong)}, {len(named)}, {len(named & set(wrong.tolist()))}")


def main(draws: int = 3, rows: int = 400, table: Path | None = None, label: str = "") -> None:
    rng, codes = np.random.default_rng(0), list[np.ndarray]()
    shares: tuple[float, ...] = (0.01, 0.05, 0.5)
    if table is None:
        pixels = np.stack([np.asarray(drawn(k % CLASSES, rng)) for k in range(rows)]).transpose(0, 3, 1, 2)
        view: Any = Images(pixels)
        clean = embedded(view, BACKBONE, torch.device("cpu")).numeric
    else:
        own, shares = read_table(table, TableSpec(label=label, image=("image",))), (0.1,)
        [view], [clean] = own.images.values(), embeddings_of(own, Backbone())
        codes = [codes_of(each) for each in (pd.Series(own.labels), *dict(own.features).values())]
    print(f"{len(find_twins(whitened(clean), view, codes))} pairs without copies")
    print("| twins | share | recall | precision |")
    for change in CHANGES:
        for share in shares:
            recall, precision = twins(view, share, change, clean, codes)
            print(f"| {change} | {share:.0%} | {recall:.2f} | {precision:.2f} |", flush=True)
    if table is not None:
        return exchanged(own, clean, rng)
    print("| fault | tables where it is found | other findings | rows: exchanged, named, both |")
    for fault, size in ((fault, size) for fault, sizes in FAULTS.items() for size in sizes):
        kinds = EXPECTED.get(fault, ("leak",) if fault else ())
        said, others, counts = 0, 0, np.zeros(3, dtype=int)
        for _ in range(draws):
            own, wrong = table_of(rng, fault, size)
            findings = check_table(own, embeddings_of(own, BACKBONE))
            right = [each for each in findings if each.kind in kinds]
            said += bool(right)
            others += sum(each.kind not in ("note", *kinds) for each in findings)
            named = {row for each in right for example in each.examples for row in example}
            counts += [len(wrong), len(named), len(named & set(wrong.tolist()))]
        rows_said = ", ".join(map(str, counts)) if fault == "labels" else ""
        print(f"| {fault or 'none'} {size or ''} | {said} of {draws} | {others} | {rows_said} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
