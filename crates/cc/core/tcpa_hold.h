/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Alone or among its own kind: a small queue, and the same share for all.
 */
#ifndef WEIR_CC_TCPA_HOLD_H
#define WEIR_CC_TCPA_HOLD_H

#include "tcpa_contend.h"

/* The root of 1 to 2^32, by Newton: bit by bit would be as many paths for the kernel's verifier. */
CC_INLINE u32 tcpa_root(u64 of)
{
	u64 root = 1U << 16;
	u32 step;

	for (step = 0; step < 20; step++)
		root = (root + of / root) / 2;
	return (u32)root;
}

/* The queue to hold, in us: the smaller a share, the more (Swift, SIGCOMM 2020, 3.5). */
CC_INLINE u32 tcpa_own_target(const struct tcpa *t)
{
	u64 rtt = cc_max(t->rtt, 1);
	u64 packet_us = cc_min(cc_div(t->mss * rtt, cc_max(t->window, t->mss / 4 + 1)), 1U << 16);

	return tcpa_root(TCPA_FAIR_US * cc_max(packet_us, 1));
}

/* No more than half of what overflowed. */
CC_INLINE u32 tcpa_target(const struct tcpa *t)
{
	u64 own = tcpa_own_target(t) + cc_min(t->spread, t->min_rtt / 4);
	u64 most = t->depth / 2;

	return (u32)(t->depth ? cc_div(own * most, own + most) : own);
}

/* What overflowed was ours in part. Whether the loss stays when less is sent, the next rounds tell. */
CC_INLINE void tcpa_back_off(struct tcpa *t)
{
	u32 share = tcpa_round_share(t);

	t->blamed = share;
	t->window_before = t->window;
	t->window -= (u32)cc_scale(t->window, (u32)cc_max(cc_min(share, 512), TCPA_LEAST_CUT));
	t->depth = (u32)cc_max(cc_less(t->round_rtt_max, t->base_rtt), 1);
	t->ceiling = t->depth < tcpa_own_target(t) ? t->window + t->window / 32 : 0;
	t->debt = 0;
	t->haste = 0;
	t->verify = TCPA_VERIFY_ROUNDS;
}

/* Loss that stays when less is sent is the path's. */
CC_INLINE void tcpa_verify(struct tcpa *t, u8 low)
{
	t->verify--;
	if (t->verify + 1U < TCPA_VERIFY_ROUNDS && t->sure && low)
		tcpa_learn_floor(t, 1);
	if (!t->verify && 2 * tcpa_floor(t) > t->blamed && t->blamed <= 2 * TCPA_MOST_FLOOR) {
		t->window = (u32)cc_max(t->window, t->window_before);
		t->ceiling = 0;
	}
}

/* Alone, or among its own kind. */
CC_INLINE void tcpa_hold_queue(struct tcpa *t, const struct cc_ack *ack)
{
	u32 rtt = t->round_rtt;
	u32 queue = (u32)cc_less(rtt, t->base_rtt);
	u32 target = tcpa_target(t);
	u8 roomy = tcpa_roomy(t, target);
	u64 step;

	if (roomy && !tcpa_owes(t, TCPA_MOST_FLOOR, 0, 32)) {
		tcpa_learn_floor(t, 1);
		t->verify = (u8)cc_less(t->verify, 1);
	} else if (t->verify && tcpa_round_share(t) <= TCPA_MOST_FLOOR) {
		tcpa_verify(t, queue * 2 <= target || tcpa_drained(t));
	} else if (roomy || tcpa_owes(t, tcpa_floor(t), TCPA_TOLERATED, 2)) {
		tcpa_back_off(t);
		return;
	}
	if (queue > target) {
		if (!t->yielding)
			t->window_yielded_from = t->window;
		if (queue > 2 * target && t->yielding < 255)
			t->yielding++;
		t->haste = 0;
		t->window -= (u32)((u64)t->window * (queue - target) / (2ULL * rtt));
		/* Half is given, and the queue stays: it is not ours. */
		if (t->yielding >= TCPA_YIELD_ROUNDS && t->window < t->window_yielded_from / 8 * 5) {
			tcpa_meet_rival(t, ack->now_us, t->window_yielded_from);
		}
		return;
	}
	t->yielding = 0;
	if (t->starved || t->verify)
		return;
	t->haste = queue * 4 <= target ? (u8)cc_min(t->haste + 1U, 8) : 0;
	step = (u64)t->window * (target - queue) / (2ULL * rtt);
	if (t->haste > 4)
		step <<= t->haste - 4;
	step = cc_min(step, t->window / 4);
	if (t->ceiling)
		step = cc_min(step, cc_less(t->ceiling, t->window));
	t->window += (u32)step;
}

#endif
