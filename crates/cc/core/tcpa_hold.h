/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Behaviour alone or among other tcpa flows: a small queue, and equal shares.
 *
 * Each flow moves its window so that the queue approaches the flow's target, by half of the missing
 * or excess data a round. All flows of a bottleneck see the same queue. The target is smaller for a
 * larger share, so the queue exceeds the targets of the larger flows first, and these flows reduce.
 * A buffer that overflows before the queue reaches the target is `shallow`: there the window
 * follows CUBIC's curve with smaller reductions.
 */
#ifndef WEIR_CC_TCPA_HOLD_H
#define WEIR_CC_TCPA_HOLD_H

#include "tcpa_contend.h"
#include "tcpa_return.h"

/* Square root of a value from 1 to 2^32, by Newton: a root bit by bit would multiply the paths that
 * the kernel's verifier follows. */
CC_INLINE u32 tcpa_root(u64 of)
{
	u64 root = 1U << 16;
	u32 step;

	for (step = 0; step < 20; step++)
		root = (root + of / root) / 2;
	return (u32)root;
}

/* The target queue by this flow's rate alone, in us: the smaller the share, the larger the queue
 * (Swift, SIGCOMM 2020, 3.5). */
CC_INLINE u32 tcpa_own_target(const struct tcpa *t)
{
	u64 rtt = cc_max(t->rtt, 1);
	u64 packet_us = cc_min(cc_div(t->mss * rtt, cc_max(t->window, t->mss / 4 + 1)), 1U << 16);

	return tcpa_root(TCPA_FAIR_US * cc_max(packet_us, 1));
}

/* The target queue, at most half of the queue that overflowed. */
CC_INLINE u32 tcpa_target(const struct tcpa *t)
{
	/* Add the spread of lumpy ACKs: a packet that waits for the next lump is not in a queue. */
	u64 own = tcpa_own_target(t) + cc_min(t->spread, t->min_rtt / (t->lumpy ? 2 : 8));
	u64 most = t->depth / 2;

	return (u32)(t->depth ? cc_div(own * most, own + most) : own);
}

/* Whether to treat loss as the path's own, because the rate is far below the rate of the last
 * overflow, and the queue is smaller than before. If the loss persists, the last overflow was
 * random loss. (Behind a policer the rate stays the same, however much the flow sends.) */
CC_INLINE u8 tcpa_doubts(struct tcpa *t)
{
	if (t->window < TCPA_FEW_SEGMENTS * t->mss || t->average >> 10 >= t->peak_rate / 4 * 3 ||
	    !tcpa_below_room(t))
		return 0;
	tcpa_learn_floor(t, 1);
	tcpa_learn_pause(t);
	t->debt = 0;
	if (!t->round_lost)
		return 1;
	t->unanswered++;
	if (t->unanswered >= TCPA_DOUBTED) {
		t->unanswered = 0;
		t->peak_rate = 0;
		t->depth = t->sound_depth;
		t->shallow = t->depth && t->depth < tcpa_own_target(t);
	}
	return 1;
}

/* The least reduction for a loss: CUBIC's for a small window. */
CC_INLINE u32 tcpa_own_cut(const struct tcpa *t)
{
	return tcpa_small(t) ? TCPA_RIVAL_CUT : TCPA_LEAST_CUT;
}

/* Reduce the window for an overflow to which this flow contributed. */
CC_INLINE void tcpa_back_off(struct tcpa *t, u64 now_us)
{
	t->peak = t->window;
	t->peak_at_us = now_us;
	t->cut = tcpa_cut(t, tcpa_own_cut(t));
	t->window -= (u32)cc_scale(t->window, t->cut);
	t->unanswered = 0;
	t->depth = (u32)cc_max(cc_less(t->round_rtt_max, t->base_rtt), 1);
	t->shallow = t->depth < tcpa_own_target(t);
	if (!tcpa_below_room(t))
		t->sound_depth = t->depth;
	t->debt = 0;
	t->haste = 0;
	t->echoes = TCPA_ECHO_ROUNDS;
}

/* Begin another start-up if a small window loses packets without any queue. The reason is a
 * policer, a short queue under many flows, or a first start-up that ended too soon on a path that
 * loses packets by itself; only another start-up shows the reason. */
CC_INLINE u8 tcpa_starts_again(struct tcpa *t, u64 now_us)
{
	u32 now_s = (u32)(now_us / 1000000U);

	if (t->window >= TCPA_AGAIN_SEGMENTS * t->mss || !tcpa_drained(t) || t->starved ||
	    now_s < t->again_s)
		return 0;
	/* A policer answers each start-up with losses: double the time until the next start-up. */
	t->again_s = now_s + (TCPA_AGAIN_S << t->restarts);
	t->restarts = cc_count(t->restarts, 6);
	tcpa_start_up_again(t);
	/* The first round with heavy loss ends this start-up. */
	t->lossy_rounds = 1;
	t->depth = 0;
	t->sound_depth = 0;
	t->shallow = 0;
	t->peak_rate = 0;
	t->unanswered = 0;
	t->echoes = 0;
	t->debt = 0;
	return 1;
}

/* Move the window towards the target queue, alone or among other tcpa flows. */
CC_INLINE void tcpa_hold_queue(struct tcpa *t, const struct cc_ack *ack)
{
	u32 rtt = t->round_rtt;
	u32 queue = (u32)cc_less(rtt, t->base_rtt);
	u32 target = tcpa_target(t);
	/* With too few packets, the flow cannot distinguish the path's own loss from the loss of
	 * many competing flows or of a policer. */
	u8 few = t->shallow && t->window < TCPA_FEW_SEGMENTS * t->mss;
	u8 roomy = !tcpa_small(t) && !few && tcpa_roomy(t, target);
	u32 floor = few ? 0 : tcpa_floor(t);
	u32 least;
	u64 step;

	/* The queue is larger than `depth`, the assumed size at an overflow. */
	if (t->depth && queue > t->depth) {
		t->depth = queue;
		t->sound_depth = (u32)cc_max(t->sound_depth, queue);
		t->shallow = t->depth < tcpa_own_target(t);
	}
	if (t->echoes) {
		/* This round reports packets sent before the reduction, when a policer's bucket is
		 * empty: its rate is the rate of the overflow. */
		if (t->echoes == TCPA_ECHO_ROUNDS)
			t->peak_rate = (u32)cc_max(t->peak_rate,
						   cc_min(t->average, t->known) >> 10);
		t->echoes--;
		t->debt = 0;
	} else if (!tcpa_doubts(t)) {
		if (roomy ? tcpa_owes(t, tcpa_most_floor(t), 0, 4) :
			    tcpa_owes(t, floor, TCPA_TOLERATED, t->shallow ? 0 : 2)) {
			tcpa_back_off(t, ack->now_us);
			return;
		}
		if (roomy)
			tcpa_learn_floor(t, 1);
	}
	/* In a shallow buffer no queue warns of an overflow. Grow as CUBIC does, and at least by a
	 * small part of a segment a round, so that shares become equal. */
	if (t->shallow) {
		if (tcpa_starts_again(t, ack->now_us))
			return;
		if (!t->starved && !t->echoes)
			tcpa_grow(t, ack, (u32)cc_scale(t->mss, tcpa_own_cut(t) / 2));
		return;
	}
	/* The brake stopped some of the growth that haste allowed: keep only the window that the
	 * flow used. */
	if (t->haste > 1 && t->round_rtt_max > t->brake)
		t->window = (u32)cc_min(t->window, t->cwnd);
	if (queue > target) {
		t->haste = 0;
		t->settled = 1;
		/* A rival takes any share that this flow gives up: reduce by at most a quarter
		 * until the next pause tells whether there is a rival. */
		least = t->held - t->held / 4;
		step = (u64)t->window * (queue - target) / (2ULL * rtt);
		t->window -= (u32)cc_min(step, cc_less(t->window, least));
		return;
	}
	if (t->starved || t->echoes)
		return;
	t->brake = t->base_rtt + 2 * target;
	if (queue * 2 > target)
		t->settled = 1;
	/* The slowest packet of the round met no queue either. */
	if (queue * 4 <= target && t->round_rtt_max <= t->brake) {
		if (tcpa_seek(t))
			return;
		t->haste = cc_count(t->haste, TCPA_HASTE_MOST);
	} else {
		t->haste = 0;
	}
	step = (u64)t->window * (target - queue) / (2ULL * rtt);
	if (t->haste > 1)
		step <<= 2 * (t->haste - 1);
	step = cc_min(step, t->window / 4);
	t->window += (u32)step;
}

#endif
