"""Tests of the parts of scripts/soak that need no root: python3 -B scripts/soaking/tests.py"""

import io
import random
import socket
import threading
import unittest

import report
import transfer
from account import Account
from trend import trend, verdict

EVERY = 5
LEVEL = 20_000


def samples(hours, growth, correlation, noise=50, seed=1):
    """Returns values with autocorrelated noise, whose level grows by `growth` percent an hour."""
    source, away, values = random.Random(seed), 0, []
    times = [EVERY * number for number in range(int(hours * 3600 / EVERY))]
    for time in times:
        away = correlation * away + source.gauss(0, noise * (1 - correlation**2) ** 0.5)
        values.append(LEVEL * (1 + growth / 100 * time / 3600) + away)
    return times, values


def judged(*words, **more):
    return verdict(trend(*samples(*words, **more), 0.999), 1)[0]


class Trends(unittest.TestCase):
    def test_growth_of_three_percent_an_hour_is_found(self):
        for correlation in (0, 0.9):
            found = [judged(4, 3, correlation, seed=seed) for seed in range(20)]
            self.assertEqual(found, ["growth"] * 20)

    def test_noise_without_growth_is_never_growth(self):
        for correlation in (0, 0.9, 0.98):
            for hours in (0.3, 4):
                found = {judged(hours, 0, correlation, seed=seed) for seed in range(20)}
                self.assertNotIn("growth", found)
        self.assertEqual(judged(4, 0, 0.9), "no growth")

    def test_the_interval_holds_the_true_slope_as_often_as_it_says(self):
        misses = 0
        for seed in range(100):
            found = trend(*samples(1, 2, 0.9, seed=seed), 0.95)
            misses += not found.low <= LEVEL * 0.02 <= found.high
        self.assertLessEqual(misses, 12)

    def test_a_single_step_is_undecided(self):
        times = [EVERY * number for number in range(400)]
        values = [LEVEL if time < 900 else LEVEL + 1000 for time in times]
        self.assertEqual(verdict(trend(times, values), 1)[0], "undecided")

    def test_a_constant_does_not_grow(self):
        times = [EVERY * number for number in range(400)]
        found = trend(times, [7] * 400)
        self.assertEqual((found.low, found.high, verdict(found, 1)[0]), (0, 0, "no growth"))

    def test_a_short_run_is_undecided_and_names_the_hours_that_decide(self):
        self.assertEqual(verdict(trend([0, 5, 10], [1, 2, 3]), 1), ("undecided", None))
        said, hours = verdict(trend(*samples(0.3, 0, 0.9, seed=3), 0.999), 1)
        self.assertEqual(said, "undecided")
        self.assertGreater(hours, 0.3)

    def test_the_table_judges_the_rate_of_a_log_and_nothing_before_the_warm_up(self):
        times = [EVERY * number for number in range(400)]
        level = [LEVEL * 3 if time < 600 else LEVEL for time in times]
        series = {"one": (times, {"rss": level, "log": [time * 10 for time in times]})}
        rows = {row["quantity"]: row for row in report.rows_of(series, 600)}
        self.assertEqual(rows["rss"]["level"], LEVEL)
        self.assertEqual((rows["log rate"]["level"], rows["log rate"]["slope_an_hour"]), (36_000, 0))
        self.assertEqual({row["verdict"] for row in rows.values()}, {"no growth"})

    def test_the_rate_of_a_quiet_log_is_judged_in_percent_of_its_mean(self):
        times = [EVERY * number for number in range(400)]
        lines = [90 * (number // 130) for number in range(400)]
        row, = report.rows_of({"one": (times, {"log": lines})}, 0)
        self.assertAlmostEqual(row["level"], 270 / times[-1] * 3600, delta=20)
        self.assertNotEqual(row["verdict"], "growth")


class Outcomes(unittest.TestCase):
    def setUp(self):
        self.account = Account(io.StringIO())

    def reached(self, answer, kind="tunnel"):
        """Makes a transfer to a target that runs `answer` on its connection."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                connection, _ = listener.accept()
                with connection:
                    answer(connection)
            threading.Thread(target=serve, daemon=True).start()
            transfer.checked(self.account, kind,
                             lambda: transfer.stream(listener.getsockname(), 100_000))
        return len(self.account.lost), len(self.account.failures), self.account.served[kind]

    def test_exact_bytes_are_served(self):
        self.assertEqual(self.reached(transfer.answer), (0, 0, 1))

    def test_a_changed_byte_is_lost(self):
        def changes(connection):
            first = connection.recv(1)
            connection.sendall(bytes([first[0] ^ 1]))
            transfer.answer(connection)
        self.assertEqual(self.reached(changes)[0], 1)

    def test_an_early_end_of_file_is_lost_even_in_an_announced_disturbance(self):
        def ends(connection):
            connection.recv(1, socket.MSG_PEEK)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        with self.account.announced("tunnel"):
            self.assertEqual(self.reached(ends)[0], 1)

    def test_only_a_disturbance_of_its_own_kind_excuses_a_reset(self):
        def resets(connection):
            linger = (1).to_bytes(4, "little") + bytes(4)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        with self.account.announced("tunnel"):
            self.assertEqual(self.reached(resets), (0, 0, 0))
            self.assertEqual(self.account.excused["tunnel"], 1)
            self.assertEqual(self.reached(resets, "other"), (0, 1, 0))


if __name__ == "__main__":
    unittest.main()
