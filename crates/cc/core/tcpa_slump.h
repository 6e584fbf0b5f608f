/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path became several times slower, or somebody came who fills its queue within a round trip or two.
 */
#ifndef WEIR_CC_TCPA_SLUMP_H
#define WEIR_CC_TCPA_SLUMP_H

#include "tcpa_state.h"

/* In a queue that grows far less comes out than goes in, twice in a row for a round trip's time. A round would
 * take as long as the queue. Lumps take a round longer than its shortest round trip. */
CC_INLINE void tcpa_watch_slump(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = ack->now_us - t->slump_since_us;
	u64 rate;

	/* There is another use for it then (tcpa_startup.h). */
	if (t->mode == TCPA_STARTUP && !t->resuming)
		return;
	if (t->slumped && !t->slump_drained && ack->inflight <= t->window)
		t->slump_drained = 1;
	if (passed < cc_max(t->min_rtt, 5000))
		return;
	rate = cc_div((ack->delivered - t->slump_delivered) * 1000000U, passed);
	t->slump_since_us = ack->now_us;
	t->slump_delivered = ack->delivered;
	if (t->mode != TCPA_STEADY || t->looking || t->slump_drained || ack->app_limited ||
	    ack->rtt_us <= t->rtt + t->min_rtt / 4 ||
	    rate * 2 >= (t->lumpy ? t->average : tcpa_per_rtt(t, t->window))) {
		t->slumps = 0;
		return;
	}
	t->slumps++;
	if (t->slumps < 2)
		return;
	t->slumped = (u32)cc_max(t->window, t->slumped);
	t->window = tcpa_clamp_window(cc_bytes_in(rate, t->min_rtt), 2ULL * t->mss);
	t->held = t->window;
	t->rate[0] = rate;
	t->rate[1] = 0;
	t->slumps = 0;
}

/* What was sent before it is gone. If it was the path that became slower, so is the queue; if somebody else came,
 * theirs still stands. */
CC_INLINE void tcpa_judge_slump(struct tcpa *t)
{
	u32 queue = (u32)cc_less(t->round_rtt, t->min_rtt);
	u32 before = (u32)cc_less(t->rtt, t->min_rtt);

	/* What this round told of was sent in the one before. */
	if (t->slump_drained < 2) {
		t->slump_drained *= 2;
		return;
	}
	if (!tcpa_queued(t)) {
		t->full_rate = t->average;
	} else if (queue > before / 4 * 3) {
		t->held = (u32)cc_max(t->window, t->slumped / 2);
		/* The next pause tells whose it is, if enough is sent for that. */
		t->standing = 1;
		t->window = (u32)cc_max(t->window, t->rival ? t->held : cc_min(t->held, 2ULL * TCPA_SMALL_SEGMENTS * t->mss));
	} else {
		return;
	}
	t->slumped = 0;
	t->slump_drained = 0;
}

#endif
