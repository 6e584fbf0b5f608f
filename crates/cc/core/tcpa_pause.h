/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Pauses: all tcpa flows of a host send less for a round trip at the same instants of its monotonic
 * clock. Each flow then measures the path without the load of these flows: the path's RTT and its
 * own loss, or the queue of a rival.
 *
 * tcpa_schedule begins a pause at most once in 1.05, 2.1 or 4.2 s, depending on the RTT, and in a
 * rival's deep queue also once in 8.4 or 16.8 s. The ACKs of the pause's packets arrive up to two
 * rounds later: until then `looking` is set, and then tcpa_judge_pause decides.
 */
#ifndef WEIR_CC_TCPA_PAUSE_H
#define WEIR_CC_TCPA_PAUSE_H

#include "tcpa_contend.h"

/* Pauses begin when the clock in us passes a multiple of 2^20 (1.05 s): all flows of a host know
 * these instants without a message. More frequent pauses would detect a rival sooner, and give up
 * more throughput. */
#define TCPA_PAUSE_SHIFT 20U
/* The least round trips between two pauses: a pause gives up a quarter or half of a round trip's
 * data. On longer paths, a flow pauses only at every second or fourth instant, and in a rival's
 * deep queue at every eighth or sixteenth. */
#define TCPA_PAUSE_EVERY 24U

/* Estimate the path's rate, however small this flow's share of the rate is: in the pause, the queue
 * shrank by the bytes that this flow did not send. The estimate is too low if other flows reduced
 * their windows as well, and too high if other flows grew. */
CC_INLINE void tcpa_learn_capacity(struct tcpa *t, u32 seen)
{
	u32 fell = (u32)cc_less(t->rtt, seen);
	u64 given = cc_less(t->window, t->round_acked);
	u64 rate;

	if (given < t->window / 4 || fell < cc_max(t->min_rtt / 32, 1000))
		return;
	rate = cc_rate(given, fell);
	if (rate > t->capacity)
		t->capacity = cc_min(rate, t->capacity / 4 * 5);
	else
		t->capacity = cc_max(rate, t->capacity / 8 * 7);
}

/* Bound this flow's share of the path. A flow's part of a shared queue is its share of the rate, so
 * if the queue hardly shrank, this flow's share is less than a quarter. */
CC_INLINE void tcpa_learn_share(struct tcpa *t, u32 seen)
{
	u64 fell = cc_less(t->rtt, seen);
	u64 given = cc_less(t->window, t->round_acked);

	if (given >= t->window / 4 && 4 * fell * t->window < given * t->rtt)
		t->capacity = cc_max(t->capacity, 4 * tcpa_per_rtt(t, t->window));
}

/* Whether the queue during a pause held far more than this flow's data, and did not shrink. A few
 * segments suffice to measure such a queue. */
CC_INLINE u8 tcpa_foreign(const struct tcpa *t, u32 seen)
{
	return seen >= t->rtt / 4 * 3 &&
	       cc_bytes_in(t->capacity, cc_less(seen, t->min_rtt)) > 4ULL * t->window;
}

/* Judge a pause by the ACKs of the packets sent in it. */
CC_INLINE void tcpa_judge_pause(struct tcpa *t, const struct cc_ack *ack)
{
	u32 seen = t->round_rtt;
	/* Allow for delayed ACKs and one packet per competing flow: the time of two and a half
	 * packets at the best rate. */
	u64 pair_us = cc_min(cc_div(2000000ULL * t->mss, tcpa_rate(t)), t->min_rtt);
	u32 slack = (u32)cc_max(tcpa_pause_slack(t), pair_us + pair_us / 4);

	t->looking = 0;
	t->calm = 0;
	if (!seen)
		return;
	if (tcpa_drained(t)) {
		t->min_rtt_at_us = ack->now_us;
	} else if (ack->now_us - t->min_rtt_at_us > TCPA_MIN_RTT_US) {
		t->min_rtt = seen;
		t->min_rtt_at_us = ack->now_us;
	}
	if (tcpa_told(t)) {
		/* Ignore heavy loss: no usable path loses as much by itself. */
		if (tcpa_round_share(t) <= TCPA_HEAVY_LOSS)
			tcpa_learn_floor(t, 4);
		tcpa_learn_pause(t);
	}
	t->sure = !t->found_shorter;
	t->found_shorter = 0;
	/* Let `depth` grow, so that the flow tries a larger queue again in time: the overflow may
	 * have been another flow's. */
	t->depth = (u32)cc_min(t->depth + t->depth / 4, TCPA_MOST_DEPTH_US);
	t->sound_depth = (u32)cc_min(t->sound_depth + t->sound_depth / 4, TCPA_MOST_DEPTH_US);
	t->room -= t->room / 32;
	t->capacity -= t->capacity / 64;
	if (seen > t->min_rtt + slack) {
		/* Ignore a late round, which a lost packet may have delayed: the other flows have
		 * long resumed. */
		if (!(tcpa_told(t) || tcpa_foreign(t, seen)) ||
		    ack->now_us > t->pause_until + 2ULL * tcpa_round_trip(t))
			return;
		tcpa_learn_capacity(t, seen);
		/* A queue stood in two pauses in a row, or in one pause if a rival was known. */
		if (t->rival || ((t->standing || t->patience > TCPA_PATIENCE) &&
				 t->window >= tcpa_least_flight(t)))
			tcpa_meet_rival(t, ack->now_us, (u32)cc_max(t->window, t->held));
		if (t->rival)
			tcpa_learn_share(t, seen);
		t->standing = 1;
		return;
	}
	t->standing = 0;
	t->held = t->window;
	if (!t->rival) {
		t->quiet_looks = cc_count(t->quiet_looks, 255);
	} else {
		t->rival--;
		t->echoes = 0;
		t->debt = 0;
	}
	t->base_rtt = seen <= t->min_rtt + tcpa_noise(t->min_rtt) ? t->min_rtt : seen;
}

/* Begin and end pauses. All flows of a host pause at the same instants, so that each flow measures
 * the path without the host's flows. Flows with longer round trips pause at a subset of the
 * instants. */
CC_INLINE void tcpa_schedule(struct tcpa *t, const struct cc_ack *ack, u8 round)
{
	u32 shift = TCPA_PAUSE_SHIFT;
	u64 before = t->acked_us;
	u64 every = TCPA_PAUSE_EVERY * tcpa_round_time(t);
	u8 deep = tcpa_deep(t);
	u8 rarely = t->sure || deep;

	shift += rarely && every > (1U << TCPA_PAUSE_SHIFT);
	shift += rarely && every > (1U << (TCPA_PAUSE_SHIFT + 1));
	shift += deep && every > (1U << (TCPA_PAUSE_SHIFT + 2));
	shift += deep && every > (1U << (TCPA_PAUSE_SHIFT + 3));
	t->acked_us = ack->now_us;
	if (t->mode == TCPA_PAUSE && ack->now_us >= t->pause_until) {
		t->mode = TCPA_STEADY;
		t->cwnd = (u32)cc_max(t->cwnd, t->window);
	}
	if (before >> shift == ack->now_us >> shift)
		return;
	/* Halves in about 22 instants. */
	t->most -= t->most / 32;
	/* Skip the first instant, because the result of start-up is recent, and small files end
	 * before the second instant. Do not skip the first instant if a queue stands: only a pause
	 * tells whether a rival keeps this queue. */
	if (before && !t->past_instant && t->rtt <= t->min_rtt + tcpa_pause_slack(t)) {
		t->past_instant = 1;
		return;
	}
	if (t->mode != TCPA_STEADY || t->restarting || t->looking || t->slumped ||
	    t->params.no_pauses)
		return;
	/* Do not pause while the rate is low and no queue stands: a pause would only confirm this,
	 * and the window is about to grow. */
	if (t->fallen && t->rtt <= t->min_rtt + tcpa_pause_slack(t))
		return;
	/* A flow without an ACK since the instant has missed it. */
	if (ack->now_us - (ack->now_us >> shift << shift) > tcpa_round_trip(t))
		return;
	t->looking = 1;
	t->past_instant = 1;
	t->pause_until = ack->now_us + tcpa_round_trip(t) / 4 * 5;
	t->mode = TCPA_PAUSE;
	/* A round that this ACK has begun is the pause's. */
	if (round)
		t->round_mode = TCPA_PAUSE;
	else
		tcpa_begin_round(t, ack);
}

#endif
