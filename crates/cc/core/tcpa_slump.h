/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path became several times slower, or a new flow fills its queue within a round trip or two.
 */
#ifndef WEIR_CC_TCPA_SLUMP_H
#define WEIR_CC_TCPA_SLUMP_H

#include "tcpa_hold.h"

/* Fewer acknowledgements arrive after a pause. A pause does not explain a rate below a quarter. */
CC_INLINE u8 tcpa_tells_of_pause(const struct tcpa *t, const struct cc_ack *ack, u64 rate)
{
	u64 over = t->pause_until + 2ULL * tcpa_round_trip(t);

	return t->looking && (ack->now_us < over || rate * 4 >= tcpa_per_rtt(t, t->window));
}

/* While a queue grows, far less leaves it than enters it, in two intervals of a round trip each. Do
 * not wait for a round, which would take as long as the queue. Lumpy ACKs make a round longer than
 * its shortest RTT. */
CC_INLINE void tcpa_watch_slump(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = ack->now_us - t->slump_since_us;
	u64 rate;

	/* tcpa_startup.h uses these fields in start-up. */
	if (t->mode == TCPA_STARTUP && !t->resuming)
		return;
	if (t->hold_until) {
		/* The queue has no room for the packets that it dropped. */
		t->window -= (u32)cc_min(ack->lost, cc_less(t->window, (u64)TCPA_LEAST_WINDOW * t->mss));
		if (ack->now_us < t->hold_until)
			return;
		t->hold_until = 0;
		t->swings = 0;
		t->slumps = 1;
	}
	if (t->slumped && !t->slump_drained && ack->inflight <= t->window)
		t->slump_drained = 1;
	if (passed < cc_max(t->min_rtt, 5000))
		return;
	rate = cc_rate(ack->delivered - t->slump_delivered, passed);
	t->slump_since_us = ack->now_us;
	t->slump_delivered = ack->delivered;
	if (t->mode != TCPA_STEADY || tcpa_tells_of_pause(t, ack, rate) || t->slump_drained || ack->app_limited ||
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
			t->hold_until = ack->now_us + cc_min(2ULL * t->low_us, (u64)TCPA_SWING_ROUNDS * t->min_rtt);
			return;
		}
	}
	t->window = tcpa_bound_window(t, cc_bytes_in(rate, t->min_rtt));
	t->held = t->window;
	t->rate[0] = rate;
	t->rate[1] = 0;
	t->slumps = 0;
}

/* The packets sent before the slump have left. If the path became slower, the queue has left with
 * them; if another flow arrived, its queue still stands. */
CC_INLINE void tcpa_judge_slump(struct tcpa *t)
{
	u32 queue = (u32)cc_less(t->round_rtt, t->min_rtt);
	u32 before = (u32)cc_less(t->rtt, t->min_rtt);

	/* This round reports packets sent in the one before. */
	if (t->slump_drained < 2) {
		t->slump_drained *= 2;
		return;
	}
	if (!tcpa_queued(t)) {
		t->full_rate = t->average;
		/* A queue soon shows if the rate is still low. */
		t->window += (u32)cc_bytes_in(tcpa_per_rtt(t, t->window), tcpa_target(t));
	} else if (queue > before / 4 * 3) {
		t->fallen = 0;
		t->held = (u32)cc_max(t->window, t->slumped / 2);
		/* The next pause tells whose queue it is, if enough is sent for that. */
		t->standing = 1;
		t->window = (u32)cc_max(t->window, t->rival ? t->held : cc_min(t->held, (u64)TCPA_FEW_SEGMENTS * t->mss));
	} else {
		return;
	}
	t->slumped = 0;
	t->slump_drained = 0;
	t->calm = 0;
}

#endif
