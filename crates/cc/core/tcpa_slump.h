/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A slump: the path became several times slower, or a new flow fills the path's queue within a
 * round trip or two.
 *
 *     two intervals in a row deliver less than half of the window, and the RTT grows
 *         -> window = delivered rate * min_rtt                       TCPA_SLUMP_LEAVING
 *     no more than the window is in flight                           TCPA_SLUMP_LEFT
 *     a round has ended since                                        TCPA_SLUMP_TOLD
 *     the next round meets no queue  -> the path is slower: keep the window
 *                    the same queue  -> a rival may have come: take a part of the window back and
 *                                       let the next pause decide
 *                    a smaller queue -> judge the round after that round
 */
#ifndef WEIR_CC_TCPA_SLUMP_H
#define WEIR_CC_TCPA_SLUMP_H

#include "tcpa_hold.h"

/* Whether the low rate is the effect of a pause, after which fewer ACKs arrive. A pause does not
 * explain a rate below a quarter. */
CC_INLINE u8 tcpa_tells_of_pause(const struct tcpa *t, const struct cc_ack *ack, u64 rate)
{
	u64 over = t->pause_until + 2ULL * tcpa_round_trip(t);

	return t->looking && (ack->now_us < over || rate * 4 >= tcpa_per_rtt(t, t->window));
}

/* The interval of a measurement: a round trip, but long enough to span the gaps between ACKs.
 * In a deep queue, ACKs pause for a part of the RTT that includes the queue. */
CC_INLINE u64 tcpa_slump_interval(const struct tcpa *t)
{
	return cc_max(tcpa_round_time(t), TCPA_SLUMP_US);
}

/* Detect a slump: in two intervals of a round trip each, the path delivers far less than the flow
 * sends, and the queue grows. A round would be too slow: a round takes as long as the queue, and
 * lumpy ACKs make a round longer than its shortest RTT. Only in a rival's deep queue is an interval
 * as long as a round.
 */
CC_INLINE void tcpa_watch_slump(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = ack->now_us - t->slump.at_us;
	u64 rate;

	/* Begin the train of tcpa_resume.h anew with each interval. */
	if (t->resuming) {
		if (ack->now_us - t->start.at_us >= tcpa_slump_interval(t))
			tcpa_set_mark(&t->start, ack);
		return;
	}
	if (t->mode == TCPA_STARTUP)
		return;
	if (t->hold_until) {
		/* The queue had no room for the lost packets: send no packets in their place. */
		t->window -= (u32)cc_min(ack->lost,
					 cc_less(t->window, (u64)TCPA_LEAST_WINDOW * t->mss));
		if (ack->now_us < t->hold_until)
			return;
		t->hold_until = 0;
		t->swings = 0;
		t->slumps = 1;
	}
	if (t->slumped && t->slump_phase == TCPA_SLUMP_LEAVING && ack->inflight <= t->window)
		t->slump_phase = TCPA_SLUMP_LEFT;
	if (passed < tcpa_slump_interval(t))
		return;
	rate = cc_rate(ack->delivered - t->slump.delivered, passed);
	tcpa_set_mark(&t->slump, ack);
	if (t->mode != TCPA_STEADY || tcpa_tells_of_pause(t, ack, rate) ||
	    t->slump_phase != TCPA_SLUMP_LEAVING || ack->app_limited ||
	    ack->rtt_us <= t->rtt + t->min_rtt / 4 ||
	    rate * 2 >= (t->lumpy ? t->average : tcpa_per_rtt(t, t->window))) {
		t->slumps = 0;
		return;
	}
	t->slumps++;
	if (t->slumps < 2)
		return;
	t->slumped = (u32)cc_max(t->window, t->slumped);
	t->settled = 0;
	t->looking = 0;
	t->most = cc_max(t->most, t->average);
	if (!t->fallen && !t->rival) {
		t->fallen = 1;
		t->fell_us = ack->now_us;
		if (t->swings >= TCPA_SWINGS) {
			t->hold_until = ack->now_us + cc_min(2ULL * t->low_us,
							     (u64)TCPA_SWING_ROUNDS * t->min_rtt);
			return;
		}
	}
	t->window = tcpa_bound_window(t, cc_bytes_in(rate, t->min_rtt));
	/* Reduce cwnd at once: with the brake cwnd would stay unchanged. On so short a path,
	 * Linux sends up to 64 KB of a window at once (tcp_tso_autosize), and is then silent for
	 * the time that these bytes take at the new pace. */
	if (t->min_rtt < TCPA_SLACK_US)
		t->cwnd = (u32)cc_min(t->cwnd, t->window);
	t->held = t->window;
	t->rate[0] = rate;
	t->rate[1] = 0;
	t->slumps = 0;
}

/* Judge a slump once the packets sent before it have left. If the path became slower, the queue has
 * left with these packets; if another flow arrived, its queue still stands. */
CC_INLINE void tcpa_judge_slump(struct tcpa *t)
{
	u32 queue = (u32)cc_less(t->round_rtt, t->min_rtt);
	u32 before = (u32)cc_less(t->rtt, t->min_rtt);
	u64 least;

	/* This round reports packets sent in the previous round. */
	if (t->slump_phase != TCPA_SLUMP_TOLD) {
		if (t->slump_phase == TCPA_SLUMP_LEFT)
			t->slump_phase = TCPA_SLUMP_TOLD;
		return;
	}
	if (!tcpa_queued(t)) {
		t->capacity = t->average;
		/* Grow by a target queue: if the rate is still low, a queue soon stands. */
		t->window += (u32)cc_bytes_in(tcpa_per_rtt(t, t->window), tcpa_target(t));
	} else if (queue > before / 4 * 3) {
		t->fallen = 0;
		t->held = (u32)cc_max(t->window, t->slumped / 2);
		/* The next pause tells whether a rival keeps this queue, if the window is large
		 * enough for a usable round. */
		t->standing = 1;
		least = t->rival ? t->held : cc_min(t->held, (u64)TCPA_FEW_SEGMENTS * t->mss);
		t->window = (u32)cc_max(t->window, least);
	} else {
		return;
	}
	t->slumped = 0;
	t->slump_phase = TCPA_SLUMP_LEAVING;
	t->calm = 0;
}

#endif
