/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Start-up: double the delivery in each round until the rate stops growing or a queue stands.
 *
 * At the end of a round, a short queue has already overflowed. A train of ACKs gives the path's
 * rate as soon as a queue stands (tcpa_watch_start). Rounds decide only if no queue ever stands,
 * because a policer or the receiver limits the rate (tcpa_judge_startup).
 */
#ifndef WEIR_CC_TCPA_STARTUP_H
#define WEIR_CC_TCPA_STARTUP_H

#include "tcpa_return.h"

/* Segments. The rate of a shorter train is the rate at which the receiver's or the network's
 * offload hands over segments. Measured, with start-up's end, on the paths of labs/tcpa.toml. */
#define TCPA_TRAIN_SEGMENTS 8U

/* End start-up by the rate of an ACK train: while a queue stands, ACKs arrive at the path's rate,
 * whatever the flow sends. Rounds would detect the end much later, after the path has dropped all
 * bytes that the queue cannot hold. */
CC_INLINE void tcpa_watch_start(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = cc_less(ack->now_us, t->start.at_us);
	u64 came = cc_less(ack->delivered, t->start.delivered);
	u64 rate;

	if (!ack->rtt_us)
		return;
	/* Begin the train anew if the application limits the rate or no queue stands. */
	if (!t->start.at_us || t->restarting || ack->app_limited ||
	    !tcpa_met_queue(t, ack->rtt_us)) {
		tcpa_set_mark(&t->start, ack);
		return;
	}
	if (tcpa_underused(t))
		return;
	if (came < (u64)TCPA_TRAIN_SEGMENTS * t->mss || passed < t->min_rtt / 8)
		return;
	rate = cc_max(cc_rate(cc_min(came, CC_MOST_RATE), passed), tcpa_rate(t));
	if (t->seeking && rate >= t->most / 4 * 3)
		tcpa_note_return(t, ack->now_us);
	tcpa_found(t, rate);
	if (t->seeking)
		t->cwnd = tcpa_clamp_window(tcpa_bdp(t), tcpa_least_flight(t));
}

/* End start-up after three rounds in which the rate grew by less than a quarter, after a single
 * round with less growth and a queue, or after two rounds with heavy loss. */
CC_INLINE void tcpa_judge_startup(struct tcpa *t, const struct cc_ack *ack)
{
	u32 share = tcpa_round_share(t);

	if (t->resuming) {
		tcpa_judge_resumed(t, ack);
		return;
	}
	if (t->mode != TCPA_STARTUP || !t->round_rate)
		return;
	if (t->seeking && t->cwnd >= tcpa_most_bdp(t) && !tcpa_queued(t)) {
		tcpa_sought(t, ack->now_us);
		return;
	}
	if (share > TCPA_HEAVY_LOSS) {
		t->lossy_rounds++;
		if (t->lossy_rounds > 1) {
			tcpa_begin_drain(t);
			return;
		}
	}
	if (t->round_rate >= t->full_rate + t->full_rate / 4) {
		/* The rate grew and there is no queue: the loss is the path's own. */
		if (tcpa_drained(t) && t->round_acked >= TCPA_SMALL_SEGMENTS * t->mss)
			tcpa_learn_floor(t, 1);
		t->full_rate = t->round_rate;
		t->full_rounds = 0;
		return;
	}
	if (t->starved && !tcpa_queued(t))
		return;
	t->full_rounds++;
	if (tcpa_queued(t) || t->full_rounds >= 3)
		tcpa_begin_drain(t);
}

#endif
