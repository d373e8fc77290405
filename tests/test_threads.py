from __future__ import annotations

import threading

import pytest

from evodrop.threads import over_rows


@pytest.mark.parametrize(
    ("rows", "threads", "least"), [(10, 1, 1), (10, 4, 1), (10, 4, 6), (3, 8, 1), (0, 4, 1), (100, 3, 0)]
)
def test_every_row_is_done_once(rows, threads, least):
    spans = []
    over_rows(lambda start, stop: spans.append((start, stop)), rows, threads, least)
    assert sorted(row for span in spans for row in range(*span)) == list(range(rows))
    assert len(spans) <= max(1, threads)
    assert all(stop - start >= min(least, rows) for start, stop in spans)


def test_parts_run_in_several_threads():
    both_here = threading.Barrier(2, timeout=30)
    over_rows(lambda *_: both_here.wait(), 2, 2, 1)


def test_an_error_in_any_part_is_raised():
    def work(start, stop):
        if start > 0:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        over_rows(work, 10, 2, 1)


def test_parts_that_use_the_pool_themselves_do_not_wait_for_each_other():
    done = []
    over_rows(lambda *_: over_rows(lambda start, stop: done.append(stop - start), 8, 8, 1), 16, 16, 1)
    assert sum(done) == 16 * 8
