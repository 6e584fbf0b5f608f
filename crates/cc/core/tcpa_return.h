/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path's rate fell (tcpa_slump.h) and rises again.
 *
 * While a queue stands, acknowledgements arrive at the path's rate. If this rate is more than the
 * window uses, the flow raises the window to the path's rate at once. If no queue stands, the
 * window grows as in start-up, up to the rate that the path carried before the fall. If the rate
 * returned soon after each of the last falls, the flow keeps its window while the rate is low.
 */
#ifndef WEIR_CC_TCPA_RETURN_H
#define WEIR_CC_TCPA_RETURN_H

#include "tcpa_resume.h"

/* Round trips: the longest time for which a flow keeps its window through a slump, because a path
 * that stays slower must not keep a queue. No lab has such short swings. Test:
 * a_window_kept_through_a_slump_fills_the_path_when_the_rate_returns of crates/sim. */
#define TCPA_SWING_ROUNDS 20U
/* Returns of the rate within TCPA_SWING_ROUNDS, in a row, before a flow keeps its window: a single
 * return may be chance. Test as above. */
#define TCPA_SWINGS 2U

CC_INLINE u64 tcpa_most_bdp(const struct tcpa *t)
{
	return cc_bytes_in(t->most, t->min_rtt);
}

/* Record that the rate has returned. */
CC_INLINE void tcpa_note_return(struct tcpa *t, u64 now_us)
{
	u64 low_us = cc_less(now_us, t->fell_us);

	if (!t->fallen)
		return;
	t->fallen = 0;
	t->hold_until = 0;
	if (low_us > (u64)TCPA_SWING_ROUNDS * t->min_rtt) {
		t->swings = 0;
		return;
	}
	t->low_us = (u32)low_us;
	t->swings = cc_count(t->swings, TCPA_SWINGS);
}

/* Raise the window to `window`, which the path carries again. The packets that the present round
 * acknowledges were sent before the raise. */
CC_INLINE void tcpa_take_up(struct tcpa *t, const struct cc_ack *ack, u64 window)
{
	u64 rate;

	t->window = tcpa_bound_window(t, window);
	rate = cc_rate(t->window, t->min_rtt);
	t->most = cc_max(t->most, cc_min(2 * t->most, rate));
	t->rate[0] = cc_max(t->rate[0], rate);
	t->cwnd = (u32)cc_max(t->cwnd, t->window);
	t->held = t->window;
	t->slumped = 0;
	t->slump_phase = TCPA_SLUMP_LEAVING;
	t->slumps = 0;
	t->haste = 0;
	t->returning = 1;
	tcpa_begin_round(t, ack);
	t->rtt = t->min_rtt;
	if (t->window >= tcpa_most_bdp(t) / 4 * 3)
		tcpa_note_return(t, ack->now_us);
}

/* While a queue stands, compare the rate of an ACK train with the window. */
CC_INLINE void tcpa_watch_return(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = cc_less(ack->now_us, t->train.at_us);
	u64 came = cc_less(ack->delivered, t->train.delivered);
	u64 window;

	if (!ack->rtt_us)
		return;
	if (!t->fallen || t->mode != TCPA_STEADY || t->rival || t->echoes || ack->app_limited ||
	    !tcpa_met_queue(t, ack->rtt_us)) {
		tcpa_set_mark(&t->train, ack);
		if (t->hold_until)
			tcpa_take_up(t, ack, t->window);
		return;
	}
	if (came < (u64)TCPA_RESUME_SEGMENTS * t->mss || passed < t->min_rtt / 8)
		return;
	tcpa_set_mark(&t->train, ack);
	window = cc_rate(cc_min(came, CC_MOST_RATE), passed);
	/* Beside other flows, a short train may arrive faster than this flow's share. Believe a
	 * rate above the path's former rate only if the rate is four windows a round trip. */
	if (t->lumpy || cc_bytes_in(window, t->min_rtt) < 4ULL * t->window)
		window = cc_min(window, t->most);
	window = cc_bytes_in(cc_min(window, 2 * t->most), t->min_rtt);
	if (t->hold_until ? window >= t->window / 4 * 3 : window >= t->window + t->window / 2)
		tcpa_take_up(t, ack, cc_max(window, t->window));
}

/* Begin start-up at the rate of the last round. */
CC_INLINE void tcpa_start_up_again(struct tcpa *t)
{
	t->mode = TCPA_STARTUP;
	t->rate[0] = t->average;
	t->rate[1] = 0;
	t->full_rate = t->average;
	t->full_rounds = 0;
	t->lossy_rounds = 0;
	/* The train begins with the next ACK. */
	t->start.at_us = 0;
	t->start.delivered = t->slump.delivered;
	t->haste = 0;
}

/* Begin start-up to seek the former rate, if no packet of this round met a queue, and if a queue
 * stood since the rate fell or no packet has met a queue for some rounds. Rounds that report a
 * pause do not count. */
CC_INLINE u8 tcpa_seek(struct tcpa *t)
{
	u64 most = tcpa_most_bdp(t);

	if (!t->fallen || t->calm < 2 || !(t->settled || t->haste > 1) ||
	    most < t->window + t->window / 2)
		return 0;
	tcpa_start_up_again(t);
	t->settled = 0;
	t->seeking = 1;
	t->cwnd = (u32)cc_max(t->cwnd, cc_min(most, cc_max(2ULL * t->window,
							   (u64)TCPA_SMALL_SEGMENTS * t->mss)));
	tcpa_pace(t, cc_rate(t->cwnd, cc_max(t->min_rtt, 1)));
	return 1;
}

/* End the search: as much is in flight as the path carried before the fall, and no queue stands. */
CC_INLINE void tcpa_sought(struct tcpa *t, u64 now_us)
{
	t->window = tcpa_bound_window(t, tcpa_most_bdp(t));
	t->held = t->window;
	t->seeking = 0;
	t->returning = 1;
	t->mode = TCPA_STEADY;
	t->capacity = t->full_rate;
	t->slump = t->start;
	tcpa_note_return(t, now_us);
}

#endif
