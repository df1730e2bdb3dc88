"""The journal before the log: what a disk or another user does to its folder loses no capture, and stops no call."""

import os
from pathlib import Path

import pytest

from streams.services.proxy import spool
from streams.services.proxy.spool import Spool, SpoolError
from tests.live import until


def spool_in(folder: Path) -> Spool:
    return Spool(folder, 10_000, (OSError,))


def written(folder: Path) -> list[bytes]:
    return [record for path in sorted(folder.glob("*.captures")) for record in spool._frames(path.read_bytes())[0]]


async def test_a_disk_that_takes_no_other_file_leaves_the_one_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "SEGMENT_BYTES", 10)
    opened, refused = spool._opened, iter([True, True, False])

    def opens(path: Path) -> int:
        if path.stem != "000000000" and next(refused, False):
            raise OSError(28, "No space left on device")
        return opened(path)

    monkeypatch.setattr(spool, "_opened", opens)
    journal = spool_in(tmp_path / "spool")
    journal.open()
    records = [b"first record", b"second record", b"third record", b"fourth record"]
    assert all(journal.append([each]) for each in records)
    await journal.stop(0)
    assert [path.name for path in sorted(tmp_path.glob("spool/*.captures"))] == [
        "000000000.captures",
        "000000001.captures",
    ]
    assert written(tmp_path / "spool") == records


async def test_a_disk_that_cannot_be_read_for_a_while_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "AGAIN_S", 0.01)
    journal, sent = spool_in(tmp_path / "spool"), list[bytes]()
    journal.open()
    read, refused = journal._batch, iter([True, True])

    def reads() -> tuple[list[bytes], int] | None:
        if next(refused, False):
            raise OSError(5, "Input/output error")
        return read()

    async def deliver(records: list[bytes]) -> None:
        sent.extend(records)

    async def delivered() -> bool:
        return sent == [b"a record"]

    monkeypatch.setattr(journal, "_batch", reads)
    journal.start(deliver)
    assert journal.append([b"a record"])
    await until(delivered, "the record is sent", 10)
    await journal.stop(0)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(SpoolError, match="others may write there"):
        spool_in(folder).open()
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(SpoolError, match="others may write there"):
        spool_in(tmp_path / "link").open()


async def test_what_only_has_the_name_of_a_file_of_ours_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    os.mkfifo(folder / "000000001.captures")
    (folder / "000000002.captures").mkdir()
    (folder / "000000003.captures").symlink_to(tmp_path / "nowhere")
    journal = spool_in(folder)
    journal.open()
    assert journal.append([b"a record"])
    await journal.stop(0)
    assert (folder / "000000004.captures").read_bytes().endswith(b"a record")
