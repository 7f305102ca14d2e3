"""Progress in a log: a line every half minute, with the time left."""

import pytest

from lwd.cli.progress import EVERY, Later, Lines, bar


def test_a_log_gets_a_line_every_half_minute(capsys):
    """Oracle: a clock that moves 4 s with each of 100 steps: 400 s in all, a line every 32 s."""
    now = [0.0]
    with Lines(100, "encoding", "image", clock=lambda: now[0]) as lines:
        for _ in range(100):
            now[0] += 4
            lines.update()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 400 // 32
    assert said[0] == "encoding: 8 of 100 images in 0:00:32, about 0:06:08 left"
    assert lines.n == 100


def test_a_later_bar_starts_its_clock_with_its_first_unit(capsys, monkeypatch):
    """Oracle: 1,000 s of other work, then 4 s for each of 100 units; the line counts 32 s, not 1,032."""
    now = [0.0]

    def opened(total, title, unit, shown, done):
        assert shown
        return Lines(total, title, unit, lambda: now[0], done)

    monkeypatch.setattr("lwd.cli.progress.bar", opened)
    with Later(100, "tabulating") as later:
        now[0] += 1000
        for _ in range(9):
            later.update()
            now[0] += 4
    assert capsys.readouterr().err.splitlines() == ["tabulating: 9 of 100 images in 0:00:32, about 0:06:04 left"]


def test_the_time_left_follows_the_speed_of_the_last_minutes(capsys):
    """Oracle: 900 units at once (found on disk), then 1 a second: 100 s for the rest, not 0."""
    now = [0.0]
    lines = Lines(2000, "fitting", "step", clock=lambda: now[0])
    lines.update(900)
    for _ in range(1000):
        now[0] += 1
        lines.set_postfix(loss="0.5", refresh=False)
        lines.update()
    last = capsys.readouterr().err.splitlines()[-1]
    assert "1890 of 2000 steps" in last
    assert "0:01:50 left" in last
    assert last.endswith("loss 0.5")


def test_short_jobs_say_nothing_and_hidden_bars_neither(capsys):
    for shown in (True, False):
        with bar(3, "sampling", shown=shown) as progress:
            progress.update(3)
    assert capsys.readouterr().err == ""
    assert pytest.approx(30) == EVERY
