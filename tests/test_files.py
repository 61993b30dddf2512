"""Files appear whole or not at all, and what the system refuses is one line."""

import json
import os
import subprocess
import sys

import pytest

from lostcities_jax import checkpoint, evaluate, export, run_folder, train, tune
from lostcities_jax.errors import UserError, run_command
from lostcities_jax.evaluation.tables import write_json
from lostcities_jax.files import replacing, write_text
from lostcities_jax.report import __main__ as report
from lostcities_jax.settings import Config
from lostcities_jax.tracking import RunLog

LONG = "x" * 300


def test_a_text_is_replaced_whole(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "old")
    write_text(path, "new, of a run in \udcff")
    assert path.read_text() == "new, of a run in \\udcff"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_file_that_fails_half_way_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_link_stays_one_and_a_device_is_written_as_it_is(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "page.html")
    write_text(link, "new")
    assert link.is_symlink() and (tmp_path / "page.html").read_text() == "new"
    write_text(type(link)(os.devnull), "new")
    assert not os.path.isfile(os.devnull)


@pytest.mark.parametrize("name", ["", ".", "/", "folder"])
def test_a_folder_is_no_file_to_write(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        write_text(type(tmp_path)(name), "text")
    assert os.listdir(tmp_path) == ["folder"]


def test_what_json_has_no_word_for_is_null(tmp_path):
    write_json(tmp_path / "out.json", [{"error": float("nan"), "all": (1.5, float("inf"), "a")}])
    record = json.loads((tmp_path / "out.json").read_text())
    assert record == [{"error": None, "all": [1.5, None, "a"]}]


@pytest.mark.parametrize(
    ("main", "argv"),
    [
        (evaluate.main, [LONG]),
        (export.main, [LONG]),
        (report.main, [LONG]),
        (train.main, ["--config", LONG]),
        (train.main, ["--resume", "--run-dir", LONG]),
        (tune.main, ["--out", LONG]),
    ],
)
def test_a_name_that_is_too_long_is_one_line(main, argv, capsys):
    assert run_command(main, argv) == 2
    error = capsys.readouterr().err
    assert "xxx" in error and "File name too long" in error and error.count("\n") == 1


def test_what_the_system_refuses_is_one_line(capsys):
    def main(argv):
        raise PermissionError(13, "Permission denied", "some/path")

    assert run_command(main, []) == 2
    assert capsys.readouterr().err == "error: 'some/path': Permission denied\n"


def test_a_run_whose_checkpoints_could_not_be_written_is_not_begun(tmp_path):
    path = tmp_path / "r\udcff"
    with pytest.raises(UserError, match="is not UTF-8; allowed for checkpoints: UTF-8"):
        run_folder.create(path, Config())
    assert not path.exists()
    with pytest.raises(UserError, match="is not UTF-8"):
        checkpoint.resolve(path)


def test_a_path_that_is_not_utf_8_can_be_written_of(tmp_path):
    with RunLog(tmp_path) as log:
        log.write_file("training in r\udcff")
    assert "training in r\\udcff" in (tmp_path / "train.log").read_text()
    script = (
        "from lostcities_jax.errors import run_command\n"
        "raise SystemExit(run_command(lambda argv: print('r\\udcff'), []))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"r\\udcff\n")
